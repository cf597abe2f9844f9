package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/client"
)

func TestOutcomeOfADeadOrder(t *testing.T) {
	for want, s := range map[string]client.Settled{
		"is cancelled; its unit is on sale again":            {Key: "1", Status: "cancelled", GivenBack: true},
		"is cancelled; it held no unit":                      {Key: "1", Status: "cancelled"},
		"is dropped; its unit is on sale again":              {Key: "1", Status: "dropped", GivenBack: true},
		"is dropped; it held no unit":                        {Key: "1", Status: "dropped"},
		"is dropped":                                         {Key: "raw:1", Status: "dropped"},
		"is paid and stays; only its dead letter is removed": {Key: "1", Status: "paid"},
	} {
		if got := became(s); got != want {
			t.Errorf("%+v %s, want %s", s, got, want)
		}
	}
	for status, want := range map[string]string{
		"queued": "is requeued", "created": "is stored already (created): nothing was requeued",
		"cancelled": "is stored already (cancelled): nothing was requeued",
	} {
		if got := requeued(client.Settled{Key: "1", Status: status}); got != want {
			t.Errorf("%s: %s, want %s", status, got, want)
		}
	}
}

func TestSinceIsATimeOrADurationAgo(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2h": now.Add(-2 * time.Hour), "2026-11-27T10:00:00Z": now.Add(-2 * time.Hour),
	} {
		if at, err := parseSince(text, now); err != nil || !at.Equal(want) {
			t.Errorf("%s: %s, %v, want %s", text, at, err, want)
		}
	}
}

// A filter by a sale selects nothing if the sale does not exist (an error), if it is archived (a hint), or if it has no
// such orders.
func TestFilterBySaleThatSelectsNothing(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /admin/v1/dead/{verb}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"dry_run":false,"done":0,"failed":0,"orders":[]}`)
	})
	mux.HandleFunc("GET /admin/v1/orders", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"orders":[]}`)
	})
	mux.HandleFunc("GET /admin/v1/sales/old", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"old","archive":{"orders":7}}`)
	})
	mux.HandleFunc("GET /admin/v1/sales", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"sales":[]}`) })
	mux.HandleFunc("GET /admin/v1/sales/shoe", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"shoe"}`)
	})
	mux.HandleFunc("GET /admin/v1/sales/shoo", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"title":"Not found","status":404,"detail":"There is no such sale.","code":"not-found"}`)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	env := map[string]string{envServer: s.URL, envAdminToken: "hush"}
	unknown := "sluice: there is no sale \"shoo\" (see sluice sale list)\n"
	archived := "sale old is archived: sluice sale show old lists the files with its orders\n"
	for _, c := range []struct {
		args, stderr string
		code         int
	}{
		{"dead retry --sale shoe", "", exitOK},
		{"dead retry --sale shoo", unknown, exitFail},
		{"dead cancel --sale shoo --dry-run", unknown, exitFail},
		{"order list --sale shoe", "", exitOK},
		{"order list --sale shoo", unknown, exitFail},
		{"order list --sale old", archived, exitOK},
	} {
		if code, _, stderr := sluice(t, env, strings.Fields(c.args)...); stderr != c.stderr || code != c.code {
			t.Errorf("sluice %s: exit %d, %q, want %d, %q", c.args, code, stderr, c.code, c.stderr)
		}
	}
}

// Another request settles one of the dead events after the list was read. A single event that is named is an error.
func TestDeadEventThatWasSettledMeanwhileIsSkipped(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /admin/v1/groups/points/dead", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"dead":[{"event":"a"},{"event":"gone"},{"event":"b"}]}`)
	})
	mux.HandleFunc("POST /admin/v1/groups/points/dead/{event}/{verb}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("event") == "gone" {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"title":"Not found","status":404,"detail":"Not found.","code":"not-found"}`)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{}`)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	env := map[string]string{envServer: s.URL, envAdminToken: "hush"}
	for _, c := range []struct {
		args, stdout string
		code         int
	}{
		{"retry --all", "a is retried\ngone was settled by another request\nb is retried\n2 events retried\n", exitOK},
		{"cancel --all", "a is dropped\ngone was settled by another request\nb is dropped\n2 events dropped\n", exitOK},
		{"retry a gone b", "a is retried\n", exitFail},
	} {
		args := append([]string{"dead", "--group", "points"}, strings.Fields(c.args)...)
		if code, stdout, stderr := sluice(t, env, args...); code != c.code || stdout != c.stdout {
			t.Errorf("sluice %v: exit %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

// While shards are unavailable, lists and filters have the orders of the others, and standard error names the shards.
func TestUnavailableShardsAreNamed(t *testing.T) {
	mux := http.NewServeMux()
	answer := func(pattern, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, body)
		})
	}
	answer("GET /admin/v1/dead", `{"dead":[{"key":"7","sale_id":"shoe","history":[]}],"unavailable_shards":[1,3]}`)
	retried := `{"dry_run":false,"done":1,"failed":0,"orders":[{"order_id":"7"}],"unavailable_shards":[2]}`
	answer("POST /admin/v1/dead/retry", retried)
	answer("POST /admin/v1/dead/cancel", `{"dry_run":false,"done":0,"failed":0,"orders":[],"unavailable_shards":[2]}`)
	answer("GET /admin/v1/queue", `{"ready":5,"shards":[{"shard":0,"ready":5}],"unavailable_shards":[1]}`)
	s := httptest.NewServer(mux)
	defer s.Close()
	env := map[string]string{envServer: s.URL, envAdminToken: "hush"}
	unchecked := "sluice: the dead orders of shard 2 were not checked: repeat the command when sluice shard list shows no error\n"
	for _, c := range []struct {
		args, stdout, stderr string
		code                 int
	}{
		{"dead list", "7      shoe", "the list lacks shards 1, 3: sluice shard list has the reason\n", exitOK},
		{"dead list --json", `"key": "7"`, "the list lacks shards 1, 3: sluice shard list has the reason\n", exitOK},
		{"queue", "0      5 ", "the list lacks shard 1: sluice shard list has the reason\n", exitOK},
		{"dead retry --all", "1 requeued, 0 failed\n", unchecked, exitFail},
		{"dead cancel --sale shoe", "0 settled, 0 failed\n", unchecked, exitFail},
	} {
		code, stdout, stderr := sluice(t, env, strings.Fields(c.args)...)
		if code != c.code || stderr != c.stderr || !strings.Contains(stdout, c.stdout) {
			t.Errorf("sluice %s: exit %d\n%s%s\nwant %d\n%s%s", c.args, code, stdout, stderr, c.code, c.stdout, c.stderr)
		}
	}
}

// The next pages have the time that the backend returned with the first one: the clock of this machine may be wrong.
func TestDeadOrdersAreSelectedByTheClockOfTheBackend(t *testing.T) {
	var requests []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		requests = append(requests, string(body))
		w.Header().Set("Content-Type", "application/json")
		next := ""
		if len(requests) == 1 {
			next = `,"next":"1~"`
		}
		fmt.Fprintf(w, `{"dry_run":false,"done":1,"failed":0,"orders":[],"died_before":"2026-11-27T10:00:09.5Z"%s}`, next)
	}))
	defer s.Close()
	env := map[string]string{envServer: s.URL, envAdminToken: "hush"}
	if code, stdout, stderr := sluice(t, env, "dead", "retry", "--all", "--json"); code != exitOK ||
		!strings.Contains(stdout, "\"done\": 2,\n  \"failed\": 0,\n  \"orders\": [],\n") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	want := []string{`{"all":true}`, `{"died_before":"2026-11-27T10:00:09.5Z","all":true,"after":"1~"}`}
	if !slices.Equal(requests, want) {
		t.Errorf("requests %q, want %q", requests, want)
	}
}

// An older backend returns no time. The orders that die after the command began are then selected by the clock of this
// machine, or by the flag.
func TestDeadOrdersOfAnOlderBackend(t *testing.T) {
	var died []time.Time
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			DiedBefore time.Time `json:"died_before"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		died = append(died, body.DiedBefore)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, []string{`{"orders":[],"next":"1~"}`, `{"orders":[]}`}[(len(died)-1)%2])
	}))
	defer s.Close()
	env := map[string]string{envServer: s.URL, envAdminToken: "hush"}
	begun := time.Now()
	for _, args := range []string{"dead retry --all", "dead retry --died-before 2026-01-01T00:00:00Z"} {
		if code, _, stderr := sluice(t, env, strings.Fields(args)...); code != exitOK {
			t.Errorf("sluice %s: exit %d, %s", args, code, stderr)
		}
	}
	flag := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if len(died) != 4 || !died[0].IsZero() || died[1].Before(begun) || !died[2].Equal(flag) || !died[3].Equal(flag) {
		t.Errorf("the requests have %s, want none, a time after %s, and twice %s", died, begun, flag)
	}
}

// The cursor is the id of an event, which may contain characters that JSON escapes.
func TestCursorOfAListIsDecoded(t *testing.T) {
	for text, want := range map[string]string{
		`{"dead":[],"next":"a\"b\\\u001b"}`: "a\"b\\\x1b", `{"dead":[],"next":17}`: "17", `{"dead":[],"next":0}`: "",
		`{"dead":[],"next":null}`: "", `{"dead":[]}`: "", `{"dead":[],"next":""}`: "",
	} {
		page := listing[string]{name: "dead", next: "of the previous page"}
		if err := json.Unmarshal([]byte(text), &page); err != nil || page.next != want {
			t.Errorf("%s: next %q, %v; want %q", text, page.next, err, want)
		}
	}
}
