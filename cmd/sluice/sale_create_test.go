package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"sluice/backend/sale"
)

// The flags that a failed create prints repeat the same request, so that the server returns the sale that it stored.
func TestRepeatedCreateIsTheSameRequest(t *testing.T) {
	var bodies []string
	status := http.StatusServiceUnavailable
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, string(body))
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"status":%d,"code":"temporarily-unavailable","detail":"Redis does not answer."}`, status)
	}))
	t.Cleanup(s.Close)
	env := map[string]string{envServer: s.URL, envAdminToken: "hush", envData: t.TempDir()}
	create := []string{"sale", "create", "--title", "Shoe", "--stock", "5", "--price", "9.99EUR", "--closes", "1h"}
	ids := map[string]bool{}
	for _, more := range [][]string{nil, {"--opens", "-5m"}, {"--id", "shoe"}, {"--opens", "2026-11-27T10:00:00Z"}} {
		bodies = nil
		args := append(create[:len(create):len(create)], more...)
		code, _, stderr := sluice(t, env, args...)
		flags := regexp.MustCompile(`\(to repeat it without creating a second sale: (.*)\)\n$`).FindStringSubmatch(stderr)
		if code != exitFail || flags == nil {
			t.Fatalf("%v: exit %d, %q", more, code, stderr)
		}
		id := strings.Fields(flags[1])[1]
		if sale.ValidateID(id) != nil || ids[id] || !strings.Contains(bodies[0], `"id":"`+id+`"`) {
			t.Errorf("%v: id %q, request %s", more, id, bodies[0])
		}
		ids[id] = true
		sluice(t, env, append(args, strings.Fields(flags[1])...)...)
		if len(bodies) != 2 || bodies[0] != bodies[1] {
			t.Errorf("%v, repeated with %s: %q", more, flags[1], bodies)
		}
	}
	for _, status = range []int{400, 401, 404, 409} { // nothing is stored
		if _, _, stderr := sluice(t, env, create...); strings.Contains(stderr, "repeat") {
			t.Errorf("after a %d: %q", status, stderr)
		}
	}
	const differs = "sluice: sale shoe exists already with other values, or was opened early or described since: " +
		"see sluice sale show shoe, or choose another --id\n"
	if code, _, stderr := sluice(t, env, append(create, "--id", "shoe")...); code != exitFail || stderr != differs {
		t.Errorf("exit %d, %q, want %q", code, stderr, differs)
	}
	delete(env, envServer)
	if code, _, stderr := sluice(t, env, create...); code != exitUsage || strings.Contains(stderr, "repeat") {
		t.Errorf("without a server: exit %d, %q", code, stderr)
	}
	env[envServer] = s.URL
	s.Close()
	if _, _, stderr := sluice(t, env, create...); !strings.Contains(stderr, "second sale: --id ") {
		t.Errorf("without an answer: %q", stderr)
	}
}
