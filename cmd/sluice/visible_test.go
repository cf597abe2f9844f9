package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// User-supplied text reaches an admin's terminal as text: it cannot move the cursor, change the direction of a line
// or hide one.
func TestControlCharactersAreEscaped(t *testing.T) {
	const evil = "a\x1b]0;owned\a\x1b[2J\u009b31m\u202egnitirw\u2066b\x7f"
	text, err := json.Marshal(evil)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/ep_2"):
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"id":"ep_2","title":%[1]s,"reason":%[1]s}`, text)
		case strings.HasSuffix(r.URL.Path, "/pause"):
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusConflict)
			fmt.Fprintf(w, `{"title":"Conflict","status":409,"code":"conflict","detail":%s}`, text)
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(
				w,
				`{"id":"shoe","title":%[1]s,"buyer":%[1]s,"sales":[{"id":"shoe","title":%[1]s}],"dead":[{"key":"1","event":"1.created","buyer":%[1]s,"reason":%[1]s}],
				"webhooks":[{"id":"ep_1","title":%[1]s,"url":%[1]s}],"body":%[1]s,"log":[{"error":%[1]s,"answer":%[1]s}],"orders":[{"order_id":"1","buyer":%[1]s}]}`,
				text,
			)
		}
	}))
	t.Cleanup(s.Close)
	env := map[string]string{envServer: s.URL, envAdminToken: "hush", envData: t.TempDir()}
	for _, args := range []string{
		"sale list", "sale show shoe", "sale pause shoe", "dead list", "dead --group web-push list", "order list",
		"order show 1", "webhook list", "webhook show ep_2", "webhook deliveries ep_1 1",
		"sale list --json", "dead list --json", "webhook deliveries ep_1 1 --json", "__complete sale show ",
	} {
		_, stdout, stderr := sluice(t, env, strings.Split(args, " ")...)
		if at := strings.IndexAny(stdout+stderr, "\x1b\a\u009b\u202e\u2066\x7f"); at >= 0 {
			t.Errorf("sluice %s: %q", args, stdout+stderr)
		}
		if !strings.Contains(stdout+stderr, `\u202egnitirw\u2066b`) {
			t.Errorf("sluice %s does not show what there is: %q", args, stdout+stderr)
		}
		var got struct{ Sales []struct{ Title string } }
		if strings.HasSuffix(args, "--json") && (json.Unmarshal([]byte(stdout), &got) != nil || got.Sales[0].Title != evil) {
			t.Errorf("sluice %s prints something else than the server's answer: %s", args, stdout)
		}
	}
}

// A rehearsal and a rebuild print text of the server on standard error while they run.
func TestControlCharactersOfProgressAreEscaped(t *testing.T) {
	const evil = `a\u001b[2J\u009b31m\u202eb\nc`
	mux := http.NewServeMux()
	answer := func(pattern string, status int, body string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if status >= 400 {
				w.Header().Set("Content-Type", "application/problem+json")
			}
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		})
	}
	answer("GET /v1/sales", 200, `{"sales":[]}`)
	answer("POST /v1/sales/{sale}/orders", 409, `{"code":"sold-out"}`)
	answer("GET /admin/v1/sales", 200, `{"sales":[{"id":"`+evil+`"}]}`)
	answer("POST /admin/v1/rehearsals", 201, `{"id":"rehearsal-a","stock":1,"per_buyer":1}`)
	answer("GET /admin/v1/sales/{sale}/audit", 200, `{"stock":1,"left":1,"balanced":true}`)
	answer("GET /admin/v1/orders", 200, `{"orders":[]}`)
	answer("GET /admin/v1/dead", 200, `{"dead":[]}`)
	answer("POST /admin/v1/rehearsals/rehearsal-a/report", 500,
		`{"status":500,"code":"internal-error","detail":"`+evil+`"}`)
	answer("POST /admin/v1/rehearsals/rehearsal-a/remove", 200, `{"id":"rehearsal-a","orders":0}`)
	answer("POST /admin/v1/rebuild", 202, `{"running":true,"fence":1,"step":"`+evil+`"}`)
	answer("GET /admin/v1/rebuild", 200, `{"running":false,"fence":1}`)
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	env := map[string]string{envServer: s.URL, envAdminToken: "hush", envData: t.TempDir(),
		envSecret: strings.Repeat("s", 32)}
	for command, shown := range map[string][]string{
		"rehearse --buyers 1 --span 100ms --think 1ms --lead 1ms --no-report --target " + s.URL: {
			`Rehearsing a\u001b[2J\u009b31m\u202eb`, `in the admin console: a\u001b[2J\u009b31m\u202eb; c`,
		},
		"sale rebuild --all": {`a\u001b[2J\u009b31m\u202eb`},
	} {
		_, _, stderr := sluice(t, env, strings.Fields(command)...)
		if strings.ContainsAny(stderr, "\x1b\u009b\u202e") {
			t.Errorf("sluice %s: %q", command, stderr)
		}
		for _, want := range shown {
			if !strings.Contains(stderr, want) {
				t.Errorf("sluice %s does not print %q: %q", command, want, stderr)
			}
		}
	}
}

// Tenants of a cluster choose the names and annotations of their Ingresses.
func TestControlCharactersOfAnImportAreEscaped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ingresses.yaml")
	const ingress = `{ kind: Ingress, metadata: { name: a, annotations: {
		nginx.ingress.kubernetes.io/limit-rps: "5",
		nginx.ingress.kubernetes.io/limit-whitelist: "a\e]0;owned\a\e[2J\u009b31m\u202egnitirw\u2066b\x7f\nb" } } }`
	if err := os.WriteFile(file, []byte(ingress), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := sluice(t, nil, "policy", "import", file)
	for name, text := range map[string]string{"the policy": stdout, "the notes": stderr} {
		if strings.ContainsAny(text, "\x1b\a\u009b\u202e\u2066\x7f") || !strings.Contains(text, "gnitirw") {
			t.Errorf("%s: exit %d: %q", name, code, text)
		}
	}
	if strings.Count(stderr, "\n") != 3 { // the other notes are about IPv6 and the status
		t.Errorf("a note has several lines: %q", stderr)
	}
}

func TestVisibleLeavesTextAsItIs(t *testing.T) {
	for _, text := range []string{"", "The shoe\t99.90 EUR\n", "鞋 👟 \u200d\u200e حذاء", "\xff is no UTF-8"} {
		if got := visible(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// fullDevice accepts no output.
type fullDevice struct{}

func (fullDevice) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A command fails if its output is lost: a script must not continue with an empty token or list.
func TestLostOutputIsAnError(t *testing.T) {
	s := fakeAdminAPI(t)
	env := map[string]string{
		envServer: s.URL, envAdminToken: "hush", envData: t.TempDir(), envSecret: strings.Repeat("s", 32),
	}
	for _, args := range []string{
		"--help", "manual", "token --user ann", "sale list", "sale list --json", "order cancel 1", "webhook rotate ep_1",
		"group vapid", "policy check ../../lua/policy.lua",
	} {
		var errOut bytes.Buffer
		code := run(t.Context(), strings.Fields(args), func(name string) string { return env[name] }, fullDevice{}, &errOut)
		if code != exitFail || strings.Count(errOut.String(), "\n") != 1 ||
			!strings.Contains(errOut.String(), "no space left on device") {
			t.Errorf("sluice %s: exit %d, %q", args, code, errOut.String())
		}
	}
}
