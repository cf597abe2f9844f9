package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// fakeAdminAPI responds like the admin API.
func fakeAdminAPI(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	say := func(pattern string, status int, text string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			media := "application/json"
			if strings.HasPrefix(r.URL.Path, "/admin/") && r.Header.Get("Authorization") != "Bearer hush" {
				status, text = 401, `{"title":"Unauthorized","status":401,"detail":"A valid token is required.","code":"unauthorized"}`
			}
			if status >= 400 {
				media = "application/problem+json"
			}
			w.Header().Set("Content-Type", media)
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		})
	}
	say("GET /admin/v1/sales", 200, `{"sales":[{"id":"shoe","title":"The shoe","news":true},{"id":"tea","title":"Tea"}]}`)
	say("GET /admin/v1/sales/shoe", 200, `{"id":"shoe","title":"The shoe","left":null,"news":true}`)
	say(
		"POST /admin/v1/sales",
		400,
		`{"title":"Bad request","status":400,"detail":"The request is not valid; see errors.","code":"bad-request","errors":[{"field":"stock","detail":"must be above 0"}]}`,
	)
	say("POST /admin/v1/sales/shoe/pause", 409,
		`{"title":"Conflict","status":409,"detail":"This is not possible in the present state.","code":"conflict"}`)
	say("POST /admin/v1/orders/1/cancel", 200, `{"order_id":"1","status":"cancelled","returning":true}`)
	say("POST /admin/v1/orders/2/cancel", 404,
		`{"title":"Not found","status":404,"detail":"Not found.","code":"not-found"}`)
	say("POST /admin/v1/sales/shoe/restock", 409,
		`{"title":"Conflict","status":409,"detail":"The sale is closed, and stays so.","code":"conflict"}`)
	say(
		"POST /admin/v1/sales/tea/restock",
		503,
		`{"title":"Temporarily unavailable","status":503,"detail":"Stored, and takes effect soon.","code":"temporarily-unavailable"}`,
	)
	say("GET /admin/v1/sales/old", 200, `{"id":"old","title":"Old","state":"closed","left":null,"drain_seconds":0,`+
		`"archive":{"orders":2,"paid":2,"revenue":{"amount":2,"currency":"EUR"},"files":["old-1.ndjson.gz"]}}`)
	for id, pausedBy := range map[string]string{"lost": "audit: units are lost", "fixed": "rebuild", "lent": "ann: stocktaking"} {
		say("GET /admin/v1/sales/"+id, 200, `{"id":"`+id+`","state":"paused","paused_by":"`+pausedBy+`"}`)
		say("POST /admin/v1/sales/"+id+"/resume", 200, `{"id":"`+id+`","state":"open"}`)
	}
	say("GET /admin/v1/sales/lost/audit", 200, `{"balanced":false}`)
	say("GET /admin/v1/sales/fixed/audit", 200, `{"balanced":true}`)
	say("GET /admin/v1/sales/old/audit", 200, `{"stock":2,"ordered":2,"archived":true,"balanced":true}`)
	say("GET /admin/v1/sales/nosuch", 404,
		`{"title":"Not found","status":404,"detail":"There is no such sale.","code":"not-found"}`)
	say("GET /admin/v1/orders/4", 200, `{"order_id":"4","status":"cancelled","cancelled_by":"root"}`)
	say("POST /admin/v1/sales/lent/open", 200, `{"id":"lent","state":"paused"}`)
	say("POST /admin/v1/sales/shoe/open", 200, `{"id":"shoe","state":"open"}`)
	say("GET /admin/v1/webhooks/ep_1", 200, `{"id":"ep_1","state":"active","last_error":"the endpoint returned 500",`+
		`"last_error_at":"2026-11-27T10:00:00Z","waiting":10000,"failed":9999}`)
	say("GET /admin/v1/webhooks", 200, `{"webhooks":[{"id":"ep_1","state":"active","waiting":9999,"failed":10000,`+
		`"oldest_age_seconds":60,"url":"https://shop.example"}]}`)
	say("POST /admin/v1/webhooks/ep_1/change", 200, `{}`)
	say("POST /admin/v1/webhooks/ep_1/rotate", 200, `{"keep":"0s","secret":"whsec_x"}`)
	say("GET /admin/v1/groups/points/dead", 200, `{"dead":[]}`)
	settled := func(dry, status string) string {
		return `{"dry_run":` + dry + `,"done":1,"failed":0,"orders":[{"order_id":"7","sale_id":"shoe","buyer":"ann",` +
			`"reason":"deadlock","status":"` + status + `","units":1,"given_back":false}]}`
	}
	say("POST /admin/v1/dead/cancel", 200, settled("true", "dead"))
	say("POST /admin/v1/dead/retry", 200, settled("false", "queued"))
	say("POST /admin/v1/rebuild", 202, `{"running":false,"fence":2,"done":0,"total":0,"not_in_sql":["late"]}`)
	say("GET /admin/v1/groups", 200, `{"stream_entries":1,"unrelayed_seconds":0,"groups":[]}`)
	say("GET /admin/v1/payments", 503, `{"title":"Temporarily unavailable","status":503,`+
		`"detail":"The service is temporarily unavailable.","code":"temporarily-unavailable"}`)
	say("POST /admin/v1/groups/old/remove", 400, `{"title":"Bad request","status":400,"code":"bad-request","errors":`+
		`[{"field":"reason","detail":"must have at most 1024 bytes"}]}`)
	say("POST /admin/v1/webhooks", 400, `{"title":"Bad request","status":400,"code":"bad-request","errors":`+
		`[{"field":"types","detail":"must be order.created or order.paid"}]}`)
	say("POST /admin/v1/sales/news/restock", 409, `{"title":"Conflict","status":409,"code":"conflict",`+
		`"detail":"Nothing was added: this Idempotency-Key was used with another number."}`)
	say("GET /admin/v1/orders/3", 404, `{"title":"Not found","status":404,"code":"not-found",`+
		`"detail":"There is no such order in SQL. Cancel a dead order under /admin/v1/dead."}`)
	say("GET /admin/v1/shards", 500, `{"title":"Internal error","status":500,"code":"internal-error",`+
		`"detail":"Something went wrong on our side."}`)
	say("GET /admin/v1/queue", 200, `<html>`)
	say(
		"GET /readyz",
		503,
		`{"title":"Temporarily unavailable","status":503,"detail":"Down.","code":"temporarily-unavailable","errors":[{"field":"redis","detail":"is down"}]}`,
	)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// Answers of the server are shown unchanged, errors are one line, and the exit code separates usage errors from
// failures.
func TestAdminCommands(t *testing.T) {
	s := fakeAdminAPI(t)
	env := map[string]string{envServer: s.URL, envAdminToken: "hush", envData: t.TempDir()}
	noOrder := func(id string) string {
		return `there is no order "` + id + `" (see sluice order list); a queued order is written soon, and a dead one is ` +
			"cancelled with sluice dead cancel\n"
	}
	for _, c := range []struct {
		args string
		code int
		out  string // a part of it
		err  string // all of it
	}{
		{"sale show shoe --json", 0, `"news": true`, ""},
		{"sale list --json", 0, `"news": true`, ""},
		{"sale show shoe", 0, "left           ?", ""},
		{"sale show shoe", 0, "in SQL within  ? (see sluice queue)\n", ""},
		{"sale show old", 0, "state      closed, archived\nstock      0\nsold       0\n", ""},
		{"sale audit old", 0, "\narchived: the orders are in the files that sluice sale show lists\nbalanced\n", ""},
		{"sale resume lost", 0, "state      open\n", "warning: sale lost does not balance, and the next audit pauses it again: " +
			"run sluice sale rebuild lost\n"},
		{"sale resume fixed", 0, "state      open\n", ""},
		{
			"sale open lent", 0, "state      paused\n",
			"warning: sale lent is paused and sells nothing: run sluice sale resume lent\n",
		},
		{"sale open shoe", 0, "state      open\n", ""},
		{"sale resume lent", 0, "state      open\n", ""}, // not by an audit: nothing is counted while buyers wait
		{"order show 4", 0, "cancelled  root\n", ""},
		{
			"webhook change ep_1 --sale shoe --sale nosuch", 0, "ep_1 is changed\n", `warning: there is no sale "nosuch" ` +
				"(see sluice sale list); the endpoint receives no event of it until it is created\n",
		},
		{"webhook show ep_1", 0, "waiting        10000+\noldest         0s\nfailed         9999\n", ""},
		{"webhook list", 0, "ep_1      active  9999     1m0s    10000+  https://shop.example", ""},
		{"webhook show ep_1", 0, "last error     the endpoint returned 500\nlast error at  2026-11-27T10:00:00Z\n", ""},
		{"webhook rotate ep_1 --keep 0s", 0, "the old one signs no longer:\n\n  whsec_x\n", ""},
		{"webhook redeliver ep_1 --failed --since yesterday", 2, "", `sluice: --since: "yesterday": want a time such as ` +
			"2026-12-01T10:00:00Z, or a duration such as 5m\n"},
		{"dead --group points retry --all", 0, "0 events retried\n", ""},
		{"dead --group points cancel --all --json", 0, "[]\n", ""},
		{"dead cancel --all --dry-run", 0, "7      shoe  ann    dead    1           deadlock", ""},
		{"dead retry --all", 0, "7      shoe  ann    queued  0           deadlock", ""},
		{"dead cancel --all --dry-run", 0, "\n1 order; without --dry-run: cancel\n", ""},
		{"dead retry --all", 0, "\n1 requeued, 0 failed\n", ""},
		{
			"sale rebuild --all", 0, "late: the database does not have this sale, and it sells nothing: create it again with its " +
				"settings, then repeat the rebuild\n", "",
		},
		{"sale rebuild nosuch", 1, "", "sluice: there is no sale \"nosuch\" (see sluice sale list)\n"},
		{
			"sale create --title T --price 1EUR --stock 0", 2, "",
			"sluice: --stock must be above 0\n",
		},
		{"sale pause shoe", 1, "", "sluice: shoe: This is not possible in the present state.\n"},
		{"order cancel 1", 0, "1 is cancelled; its unit returns to the sale when Redis responds\n", ""},
		{"order cancel 1 2", 1, "1 is cancelled", "sluice: " + noOrder("2")},
		{"order cancel 1 2 --json", 1, `"name": "1"`, "sluice: " + noOrder("2")},
		{"order show 3", 1, "", "sluice: " + noOrder("3")},
		{
			"queue", 1, "",
			"sluice: " + s.URL + " is not a server of sluice: client: GET /admin/v1/queue: decode the response: invalid character '<' looking for beginning of value\n",
		},
		{"group list", 0, "\n1 event in the stream; none waits in the database\n", ""},
		{"payment list", 1, "",
			"sluice: The service is temporarily unavailable. (sluice health --server " + s.URL + " names the component; " +
				"if it is ready, the log of the backend has the cause)\n"},
		{"shard list", 1, "",
			"sluice: Something went wrong on our side. (the log of the backend " + s.URL + " has the cause)\n"},
		{"webhook add https://shop.example --type order.foo", 2, "", "sluice: --type must be order.created or order.paid\n"},
		{"group remove old --yes", 2, "", "sluice: old: --reason must have at most 1024 bytes\n"},
		{"sale restock news --add 1", 1, "", "sluice: Nothing was added: this --key was used with another number.\n"},
		{"health", 1, "", "sluice: not ready: redis: is down\n"},
		{"health --json", 1, `"ready": false`, "sluice: not ready: redis: is down\n"},
		{"health --server x", 2, "", "sluice: --server \"x\": want http://host:port\n"},
	} {
		code, stdout, stderr := sluice(t, env, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(stdout, c.out) || stderr != c.err {
			t.Errorf("sluice %s: exit %d, %q and %q; want %d, %q and %q", c.args, code, stdout, stderr, c.code, c.out, c.err)
		}
		if strings.HasSuffix(c.args, "--json") && !json.Valid([]byte(stdout)) {
			t.Errorf("sluice %s prints no JSON: %s", c.args, stdout)
		}
	}
	if _, _, stderr := sluice(t, env, "sale", "restock", "shoe", "--add", "1", "--key",
		"once"); stderr != "sluice: The sale is closed, and stays so.\n" {
		t.Errorf("a rejection suggests a repetition: %q", stderr)
	}
	if _, _, stderr := sluice(t, env, "sale", "restock", "tea", "--add", "1", "--key", "once"); !strings.HasSuffix(stderr,
		"--key once)\n") {
		t.Errorf("the outcome is unknown, and the message does not suggest how to repeat the command: %q", stderr)
	}
	s.Close()
	if code, _, stderr := sluice(t, env, "sale", "list"); code != 1 ||
		!strings.HasPrefix(stderr, "sluice: no response from "+s.URL+": start sluice, or set --server to its admin") {
		t.Errorf("without a server: exit %d, %q", code, stderr)
	}
}

// A server that rejects the token has changed nothing, so there is no remedy against a repeated change.
func TestWrongAdminToken(t *testing.T) {
	s := fakeAdminAPI(t)
	want := "sluice: " + s.URL + ": wrong admin token: SLUICE_ADMIN_TOKEN must have the value of the backend; " +
		"for sluice up, it is in the file admin.token of its data directory (--data)\n"
	const create = "sale create --title x --stock 1 --price 1EUR"
	for _, line := range []string{"sale restock shoe --add 1", create, "sale list"} {
		code, _, stderr := call(t, line, envServer+"="+s.URL, envAdminToken+"=other", envData+"="+t.TempDir())
		if code != exitFail || stderr != want {
			t.Errorf("sluice %s: exit %d, %q, want %q", line, code, stderr, want)
		}
	}
}

// An unknown command is a usage error at every level, and the line names the help.
func TestUnknownCommands(t *testing.T) {
	for args, want := range map[string]string{
		"nosuch":            "sluice: unknown command \"nosuch\" for \"sluice\" (see sluice --help)\n",
		"sale nosuch":       "sluice: unknown command \"nosuch\" for \"sluice sale\" (see sluice sale --help)\n",
		"completion nosuch": "sluice: unknown command \"nosuch\" for \"sluice completion\" (see sluice completion --help)\n",
	} {
		if code, stdout, stderr := sluice(t, nil, strings.Fields(args)...); code != 2 || stdout != "" || stderr != want {
			t.Errorf("sluice %s: exit %d, %q, %q", args, code, stdout, stderr)
		}
	}
}

func TestJSONOfLocalCommands(t *testing.T) {
	env := map[string]string{envSecret: strings.Repeat("s", 32)}
	for _, c := range []struct {
		args string
		code int
		has  string
	}{
		{"token --user ann --json", 0, "expires_at"},
		{"group vapid --json", 0, "private"},
		{"policy check ../../lua/policy.lua --json", 0, `"valid": true`},
		{"policy check nothing.lua --json", 2, `"valid": false`},
		{"policy check ../../gateway/policy/testdata/bad/rate_zero.lua --json", 2, `"errors": [
    {
      "line": 3,
      "detail": "`},
	} {
		code, stdout, _ := sluice(t, env, strings.Fields(c.args)...)
		if code != c.code || !json.Valid([]byte(stdout)) || !strings.Contains(stdout, c.has) {
			t.Errorf("sluice %s: exit %d, %s", c.args, code, stdout)
		}
	}
}

// Tab completes commands, flags and their values, and requests names from the server; without an answer it offers none.
func TestCompletion(t *testing.T) {
	s := fakeAdminAPI(t)
	env := map[string]string{envServer: s.URL, envAdminToken: "hush"}
	complete := func(args ...string) string {
		_, out, _ := sluice(t, env, append([]string{"__complete"}, args...)...)
		return out
	}
	for _, c := range []struct{ args, has, hasNot string }{
		{"sa", "sale\t", "token"},
		{"sale pause |", "shoe\tThe shoe\ntea\tTea\n", "up"},
		{"sale pause shoe |", ":4", "tea"},
		{"rehearse |", "shoe\tThe shoe\ntea\tTea\n", "up"},
		{"order list --status |", "cancelled\n", "created,"},
		{"group run |", "webhooks\n", "sale"},
		{"sale show --|", "--json", "--stock"},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, "|", ""))
		if strings.HasSuffix(c.args, " |") {
			args = append(args, "")
		}
		if got := complete(args...); !strings.Contains(got, c.has) || strings.Contains(got, c.hasNot) {
			t.Errorf("%q completes to %q, want %q and not %q", c.args, got, c.has, c.hasNot)
		}
	}
	s.Close()
	if got := complete("sale", "pause", ""); !strings.HasPrefix(got, ":4") {
		t.Errorf("without a server: %q", got)
	}
}

// Another server may answer every path with a page. A command that changes something must not report success then.
func TestPageOfAnotherServerIsAnError(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<html>\n")
	}))
	defer s.Close()
	env := map[string]string{envServer: s.URL, envAdminToken: "hush"}
	for _, args := range []string{
		"sale list", "group remove points --yes", "payment settle pay_1", "webhook pause ep_1", "health",
	} {
		code, _, stderr := sluice(t, env, strings.Fields(args)...)
		if code != exitFail || !strings.Contains(stderr, s.URL+" is not a server of sluice: ") {
			t.Errorf("sluice %s: exit %d, %q", args, code, stderr)
		}
	}
}

// A redirect or a refusal of another server names that server. A request that is too long is an error of its arguments.
func TestRefusalsOfOtherServers(t *testing.T) {
	status, body := http.StatusFound, ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Location", "https://shop.example/")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	defer s.Close()
	want := s.URL + " is not a server of sluice: the server returned status 302"
	code, _, stderr := call(t, "sale list", envServer+"="+s.URL, envAdminToken+"=hush")
	if code != exitFail || stderr != "sluice: "+want+"\n" {
		t.Errorf("exit %d, %q, want %q", code, stderr, want)
	}
	status, body = 431, `{"status":431,"code":"too-large","detail":"The request is too long."}`
	code, _, stderr = call(t, "order list --buyer x", envServer+"="+s.URL, envAdminToken+"=hush")
	if code != exitUsage || stderr != "sluice: The request is too long.\n" {
		t.Errorf("exit %d, %q, want the detail of the problem", code, stderr)
	}
}

// A restock whose key was used before adds nothing. The command reports that, because another restock may be meant.
func TestRepeatedRestockIsReported(t *testing.T) {
	stock, used := 5, map[string]bool{}
	mux := http.NewServeMux()
	show := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"shoe","stock":%d}`, stock)
	}
	mux.HandleFunc("GET /admin/v1/sales/shoe", show)
	mux.HandleFunc("POST /admin/v1/sales/shoe/restock", func(w http.ResponseWriter, r *http.Request) {
		if key := r.Header.Get("Idempotency-Key"); !used[key] {
			stock, used[key] = stock+1, true
		}
		show(w, r)
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	env := map[string]string{envServer: s.URL, envAdminToken: "hush"}
	for _, c := range []struct{ args, stderr string }{
		{"sale restock shoe --add 1 --key truck", ""},
		{"sale restock shoe --add 1 --key truck", "nothing was added: --key truck was used for this before\n"},
		{"sale restock shoe --add 1 --key van --json", ""},
		{"sale restock shoe --add 1 --key van --json", "nothing was added: --key van was used for this before\n"},
		{"sale restock shoe --add 1", ""},
	} {
		if code, _, stderr := sluice(t, env, strings.Fields(c.args)...); stderr != c.stderr || code != exitOK {
			t.Errorf("sluice %s: exit %d, %q, want %q", c.args, code, stderr, c.stderr)
		}
	}
}

// Closing a sale prompts for its id. Without a terminal it needs --yes.
func TestClosingASalePrompts(t *testing.T) {
	for _, row := range []struct {
		interactive bool
		typed, err  string
	}{
		{true, "shoe\n", ""},
		{true, " shoe", ""},
		{true, "y\n", "not confirmed; nothing was changed"},
		{true, "", "not confirmed; nothing was changed"},
		{false, "shoe\n", "Careful. Confirm with --yes"},
	} {
		var prompt bytes.Buffer
		p := &program{in: strings.NewReader(row.typed), interactive: row.interactive, errOut: &prompt}
		err := p.confirm(t.Context(), "Careful.", "shoe")
		if row.err == "" && err != nil || row.err != "" && (err == nil || err.Error() != row.err) {
			t.Errorf("%+v: %v", row, err)
		}
		want := ""
		if row.interactive {
			want = "Careful. Type shoe to confirm: "
			if !strings.HasSuffix(row.typed, "\n") {
				want += "\n"
			}
		}
		if prompt.String() != want {
			t.Errorf("%+v: the prompt is %q, want %q", row, prompt.String(), want)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	silent, _ := io.Pipe()
	p := &program{in: silent, interactive: true, errOut: io.Discard}
	if err := p.confirm(ctx, "Careful.", "shoe"); err == nil || err.Error() != "not confirmed; nothing was changed" {
		t.Errorf("an interrupted prompt: %v", err)
	}
	s := fakeAdminAPI(t)
	env := map[string]string{envServer: s.URL, envAdminToken: "hush"}
	if code, _, stderr := sluice(t, env, "sale", "close", "shoe"); code != exitUsage ||
		!strings.Contains(stderr, "--yes") {
		t.Errorf("without a terminal: exit %d, %q", code, stderr)
	}
}

// A removal of endpoints or groups deletes events that were not handled. Without a terminal it needs --yes.
func TestRemovalsPrompt(t *testing.T) {
	var removed []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		removed = append(removed, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "{}")
	}))
	defer s.Close()
	env := map[string]string{envServer: s.URL, envAdminToken: "hush"}
	for _, c := range []struct{ args, stderr, sent string }{
		{"webhook remove ep_1 ep_2", "sluice: Removing ep_1 deletes its deliveries, also those that wait. Confirm with --yes\n", ""},
		{"group rm points", "sluice: Removing points deletes its dead letters and its unacknowledged events. Confirm with --yes\n", ""},
		{"webhook rm ep_1 ep_2 --yes", "", "POST /admin/v1/webhooks/ep_1/remove POST /admin/v1/webhooks/ep_2/remove"},
		{"group remove points --yes", "", "POST /admin/v1/groups/points/remove"},
	} {
		removed = nil
		code, _, stderr := sluice(t, env, strings.Fields(c.args)...)
		wantCode := exitOK
		if c.stderr != "" {
			wantCode = exitUsage
		}
		if got := strings.Join(removed, " "); got != c.sent || stderr != c.stderr || code != wantCode {
			t.Errorf("sluice %s: exit %d, %q, sent %q; want %q, %q", c.args, code, stderr, got, c.stderr, c.sent)
		}
	}
}

// Wrong command lines get one line with the remedy, and exit 2.
func TestWrongCommandLines(t *testing.T) {
	for line, want := range map[string]string{
		"webhok list":                 `unknown command "webhok" for "sluice": did you mean webhook? (see sluice --help)`,
		"sale lst":                    `unknown command "lst" for "sluice sale": did you mean list? (see sluice sale --help)`,
		"at":                          `unknown command "at" for "sluice" (see sluice --help)`,
		"kyes":                        `unknown command "kyes" for "sluice": did you mean keys? (see sluice --help)`,
		"Sale list":                   `unknown command "Sale" for "sluice": did you mean sale? (see sluice --help)`,
		"token --for 1s":              "unknown flag: --for (see sluice token --help)",
		"tokn --user ann":             `unknown command "tokn" for "sluice": did you mean token? (see sluice --help)`,
		"sale crate --id x":           `unknown command "crate" for "sluice sale": did you mean create? (see sluice sale --help)`,
		"sale frobnicate --id x":      `unknown command "frobnicate" for "sluice sale" (see sluice sale --help)`,
		"rehearse claen --x":          `unknown command "claen" for "sluice rehearse": did you mean clean? (see sluice rehearse --help)`,
		"rehearse shoe --buyer 5":     "unknown flag: --buyer: did you mean --buyers? (see sluice rehearse --help)",
		"sale --frobnicate":           "unknown flag: --frobnicate (see sluice sale --help)",
		"sale show --frobnicate":      "unknown flag: --frobnicate (see sluice sale show --help)",
		"sale frobnicate":             `unknown command "frobnicate" for "sluice sale" (see sluice sale --help)`,
		"sale show":                   "SALE is missing: want sluice sale show SALE [flags]",
		"sale show a b":               `unexpected argument "b": want sluice sale show SALE [flags]`,
		"sale create shoe3 --title x": `unexpected argument "shoe3": use --id shoe3, or quotes around a title of several words`,
		"sale create --id a shoe3":    `unexpected argument "shoe3": want sluice sale create --title T --stock N --price 19.99EUR [flags]`,
		"sale create a/b":             `unexpected argument "a/b": want sluice sale create --title T --stock N --price 19.99EUR [flags]`,
		"sale restock":                "SALE is missing: want sluice sale restock SALE --add N [flags]",
		"sale restock a 3":            `unexpected argument "3": want sluice sale restock SALE --add N [flags]`,
		"rehearse a b":                `unexpected argument "b": want sluice rehearse [SALE] [flags]`,
		"rehearse claen a":            `unknown command "claen" for "sluice rehearse": did you mean clean? (see sluice rehearse --help)`,
		"sale rebuild a b":            `unexpected argument "b": want sluice sale rebuild [SALE | --all] [flags]`,
		"group rm":                    "GROUP is missing: want sluice group remove GROUP... [flags]",
		"group run --redis x":         "GROUP is missing: want one of points, web-push, webhooks",
		"group run nosuch":            `there is no group "nosuch" here: want one of points, web-push, webhooks`,
		"rehearse clean --server http://127.0.0.1:1 shoe": `"shoe" is not a rehearsal: its id begins with rehearsal-`,
		"up --data /dev/null":                             "--data /dev/null: mkdir /dev/null: not a directory",
		"up --listen 127.0.0.1:1 --admin 127.0.0.1:1":     "--listen and --admin are both 127.0.0.1:1: want two addresses",
		"up --listen 127.0.0.1:70000":                     `--listen "127.0.0.1:70000": a port is at most 65535`,
		"sale create --titel x":                           "unknown flag: --titel: did you mean --title? (see sluice sale create --help)",
		"sale create --frobnicate x":                      "unknown flag: --frobnicate (see sluice sale create --help)",
		"sale create --stock ten":                         `--stock "ten": want a whole number, such as 100 (see sluice sale create --help)`,
		"sale create --stock 99999999999999999999":        `--stock "99999999999999999999": the number is out of range (see sluice sale create --help)`,
		"sale create --stock 0100":                        `--stock "0100": want a whole number, such as 100 (see sluice sale create --help)`,
		"order list --limit 0x10":                         `--limit "0x10": want a whole number, such as 100 (see sluice order list --help)`,
		"edge --upstream 10.0.0.1:1 --root /nosuch":       `--root "/nosuch": want a directory with nginx/ and lua/, or an empty value for the built-in files`,
		"sale create --hold soon":                         `--hold "soon": want a duration, such as 30s or 15m (see sluice sale create --help)`,
		"sale create --title x --stock 1 --price 9.99":    `--price: "9.99" has no currency: want an amount and a currency, such as 9.99EUR`,
		"sale create --title x --stock 1 --price 9.9EUR":  `--price: "9.9EUR": want an amount and a currency, such as 19.99EUR; EUR has 2 decimals`,
		"version --log yaml":                              `--log "yaml": want text, json or auto`,
		"sale list --server 127.0.0.1/x":                  `no admin token: set SLUICE_ADMIN_TOKEN, or --data to the directory of a sluice up (.sluice has none)`,
		"sale list --as hold":                             `the admin name "hold" (--as, SLUICE_ADMIN_NAME) is reserved for automatic actions: use another one`,
		"sale archive shoe --output . --redis redis://127.0.0.1:1/0 --database sqlite:x --as sluice": `the admin name "sluice" (--as, SLUICE_ADMIN_NAME) is reserved for automatic actions: use another one`,
		"webhook change ep_1 --reason x":                      "nothing to change: set --url, --title, --type or --sale",
		"webhook deliveries ep_1 --after x":                   `--after "x": want the number that the previous page ended with`,
		"policy import":                                       "FILE is missing: want sluice policy import FILE [flags]",
		"dead list --group points --sale x":                   "--sale selects dead orders, and --group lists dead events: use one of them",
		"policy import nosuch.conf":                           "nosuch.conf does not exist: name an nginx configuration, or a YAML or JSON file",
		"up --database postgres://10.0.0.4/x":                 "--database postgres://...: name a Redis with --redis; the embedded one is for SQLite only",
		"gateway --upstream 10.0.0.1:1 --metrics foo":         `--metrics "foo": want host:port, such as 127.0.0.1:9102`,
		"edge --upstream 10.0.0.1:1 --metrics foo":            `--metrics "foo": want host:port, such as 127.0.0.1:9102`,
		"edge --upstream 10.0.0.1:1 --metrics 127.0.0.1:8080": "--listen and --metrics are both 127.0.0.1:8080: want two addresses",
		"gateway --upstream ftp://10.0.0.1:1":                 `--upstream "ftp://10.0.0.1:1": backends are reached by http, and not by ftp`,
	} {
		t.Chdir(t.TempDir())
		code, _, stderr := sluice(t, map[string]string{envSecret: strings.Repeat("x", 32)}, strings.Fields(line)...)
		if stderr != "sluice: "+want+"\n" || code != exitUsage {
			t.Errorf("sluice %s: exit %d, %q; want %q", line, code, stderr, want)
		}
	}
}

// An empty argument is usually that of a variable that is not set. It is neither a name nor a default.
func TestEmptyArgumentIsRejected(t *testing.T) {
	for line, want := range map[string]string{
		"policy check":        "sluice policy check [FILE] [flags]",
		"policy import":       "sluice policy import FILE [flags]",
		"policy replay a.log": "sluice policy replay ACCESS_LOG... [flags]",
		"keys public":         "sluice keys public FILE... [flags]",
		"sale":                "sluice sale [flags]",
		"sale show":           "sluice sale show SALE [flags]",
	} {
		t.Chdir(t.TempDir())
		code, _, stderr := sluice(t, nil, append(strings.Fields(line), "")...)
		if want = "sluice: an argument is empty: want " + want + "\n"; stderr != want || code != exitUsage {
			t.Errorf("sluice %s: exit %d, %q; want %q", line, code, stderr, want)
		}
	}
}

// A value of a variable is rejected by its name, also if the address of the process is in use. A flag replaces it.
func TestInvalidVariablesAreNamed(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for _, c := range []struct{ line, variable, want string }{
		{"up", "SLUICE_SHARDS=abc", "SLUICE_SHARDS=abc: want a whole number, between 1 and 64"},
		{"up", "SLUICE_SHARDS=010", "SLUICE_SHARDS=010: want a whole number, between 1 and 64"},
		{"up", "SLUICE_SHARDS=65", "SLUICE_SHARDS=65: want a whole number, between 1 and 64"},
		{"up --shards 65", "SLUICE_SHARDS=abc", "--shards must be between 1 and 64"},
		{"up", "SLUICE_MAX_READY=1e6", "SLUICE_MAX_READY=1e6: want a whole number, at least 1"},
		{"up", "SLUICE_WEBHOOK_TIMEOUT=15",
			"SLUICE_WEBHOOK_TIMEOUT=15: want a duration such as 30s, between 100ms and 2m"},
		{"up", "SLUICE_QUEUE=heap", "SLUICE_QUEUE=heap: want list or stream"},
		{"up --queue heap", "SLUICE_QUEUE=list", `--queue "heap": want list or stream`},
		{"up", "SLUICE_REDIS_URL=foo", "SLUICE_REDIS_URL: want redis://[user:password@]host:port/db or unix:///path?db=N"},
		{"up --redis foo", "SLUICE_REDIS_URL=redis://127.0.0.1:1/0",
			"--redis: want redis://[user:password@]host:port/db or unix:///path?db=N"},
		{"up --redis redis://127.0.0.1:1/x", "",
			"--redis: bad Redis URL: want redis://[user:password@]host:port/db or unix:///path?db=N"},
		{"up", "SLUICE_DATABASE_URL=mysql://x", "SLUICE_DATABASE_URL: must begin with postgres:// or sqlite:"},
		{"up --database mysql://y", "SLUICE_DATABASE_URL=mysql://x", "--database: must begin with postgres:// or sqlite:"},
		{"up --sign-in javascript:x", "",
			`--sign-in "javascript:x": use an http or https URL with {url}, such as https://shop.example/login?back={url}`},
		{"up --listen 127.0.0.1:0 --admin 127.0.0.1:0", "SLUICE_ADMIN_TOKEN=short",
			"SLUICE_ADMIN_TOKEN has 5 bytes: it must hold at least 16 (openssl rand -hex 32 makes one)"},
		{"token --user ann --ttl -5s", "", "--ttl must be positive, such as 10m"},
	} {
		code, stdout, stderr := call(t, c.line+" --data "+t.TempDir(),
			"SLUICE_TOKEN_SECRET="+testSecret, "SLUICE_REDIS_URL=redis://127.0.0.1:1/0",
			"SLUICE_LISTEN="+busy.Addr().String(), c.variable)
		if code != exitUsage || stdout != "" || stderr != "sluice: "+c.want+"\n" {
			t.Errorf("%s sluice %s: exit %d, %s%s, want %s", c.variable, c.line, code, stdout, stderr, c.want)
		}
	}
}
