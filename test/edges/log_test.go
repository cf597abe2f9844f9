package edges

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

// Both edges log the same fields, because tools read them by name.
func TestEdgesWriteTheSameLog(t *testing.T) { overBoth(t, edgesWriteTheSameLog) }

func edgesWriteTheSameLog(t *testing.T, socket bool) {
	conf, err := os.ReadFile("../../nginx/conf.d/30-log.conf")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`"([a-z_]+)":`).FindAllStringSubmatch(string(conf), -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	both := startBoth(t, options{socket: socket, policy: shop}, play)
	const last = "Connection: close"
	raws := []string{
		request("GET", "/", "X-Forwarded-For: 2001:db8::1", "User-Agent: \"a\"\\", last),
		request("POST", "/v1/sales/1/orders", "X-Forwarded-For: 192.0.2.1", bearer(t, "ann"), last),
		request("POST", "/v1/sales/1/orders", "X-Forwarded-For: 192.0.2.1", last),
		request("GET", "/slow", "X-Forwarded-For: 192.0.2.2", last),
		request("GET", "/slow", "X-Forwarded-For: 192.0.2.2", last),
		request("GET", "/healthz", last),
		request("POST", "/healthz", last),
		request("GET", "/admin", last),
		request("GET", "/a//b", last),
		request("GET", "/a//b", "X-Forwarded-For: 192.0.2.4", last),
		request("GET", "/", "Token: a", "Token: b", last),
		request("GET", "/broken", "X-Forwarded-For: 192.0.2.3", last),
		"nonsense\r\n\r\n",
		post("Content-Length: 17000"),
		post("X-Forwarded-For: 192.0.2.5", "Content-Length: 17000"),
	}
	logs := make([][]string, len(both))
	for i, e := range both {
		for _, raw := range raws {
			e.send(t, raw)
		}
		want := len(raws) - 1 // /healthz is not logged
		testenv.Eventually(t, time.Minute, fmt.Sprintf("%s has logged %d requests", e.name, want),
			func() bool { return strings.Count(e.log(), "\n") >= want })
		for line := range strings.Lines(e.log()) {
			var entry map[string]any
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				t.Fatalf("%s logs %s: %v", e.name, line, err)
			}
			if got := slices.Sorted(maps.Keys(entry)); !slices.Equal(got, names) {
				t.Errorf("%s logs the fields\n%v, want\n%v", e.name, got, names)
			}
			logs[i] = append(logs[i], comparable(t, e, entry))
		}
	}
	// Entries are written at the end of requests, so those of two workers may be in another order.
	for i := range logs {
		slices.Sort(logs[i])
	}
	if a, b := strings.Join(logs[0], "\n"), strings.Join(logs[1], "\n"); a != b {
		t.Errorf("nginx logs\n%s\n\nand the gateway\n%s", a, b)
	}
}

// comparable returns an entry without the values that must differ, after it has verified them. An entry of a malformed
// request has no path to compare.
func comparable(t *testing.T, e *edge, entry map[string]any) string {
	t.Helper()
	number := func(name string, least, most float64) {
		if n, ok := entry[name].(float64); !ok || n < least || n > most {
			t.Errorf("%s logs %s %v", e.name, name, entry[name])
		}
		delete(entry, name)
	}
	now := float64(time.Now().Unix())
	number("time", now-60, now+60)
	number("seconds", 0, 10)
	number("bytes", 100, 10_000)
	number("worker", 1, 1<<31)
	if id, _ := entry["request_id"].(string); !hex32.MatchString(id) {
		t.Errorf("%s logs the id %q", e.name, id)
	}
	delete(entry, "request_id")
	if entry["status"] == float64(503) { // the edges may try a backend a different number of times
		delete(entry, "upstream_status")
		entry["upstream"], entry["upstream_seconds"] = "", ""
	}
	asked := entry["upstream"] == e.backend.address
	if seconds, _ := entry["upstream_seconds"].(string); asked != seconds3.MatchString(seconds) ||
		!asked && entry["upstream"] != "" {
		t.Errorf("%s logs upstream %q, upstream_seconds %q", e.name, entry["upstream"], seconds)
	}
	entry["upstream"] = asked
	delete(entry, "upstream_seconds")
	delete(entry, "reason") // its text may differ
	if status := entry["status"].(float64); status == 400 || status == 413 {
		delete(entry, "path")
		delete(entry, "method")
		delete(entry, "agent")
	}
	text, err := json.Marshal(entry)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var seconds3 = regexp.MustCompile(`^\d+\.\d{3}$`)
