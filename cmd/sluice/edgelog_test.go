package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

// Each line of nginx's error log is one of the program's log, with its level, also if it is read in parts.
func TestErrorLogOfNginx(t *testing.T) {
	const at, process = "2026/11/28 10:00:00 ", "12#12: "
	for _, c := range []struct{ in, want string }{
		{"nginx: [emerg] bind() failed\n", "ERROR bind() failed\n"},
		{at + "[alert] " + process + "worker process 13 exited on signal 9\n", "ERROR worker process 13 exited on signal 9\n"},
		{at + "[warn] " + process + "*7 [lua] refusal_cache.lua:178: no list\n", "WARN no list\n"},
		{at + "[notice] " + process + "[lua] edge.lua:75: init(): policy: a.lua; rules: 1\n", "INFO policy: a.lua; rules: 1\n"},
		{at + "[notice] " + process + "start worker process 13\n", "DEBUG start worker process 13\n"},
		{
			at + "[error] " + process + "*7 client intended to send too large body: 20000 bytes, client: 192.0.2.1\n",
			"DEBUG client intended to send too large body: 20000 bytes, client: 192.0.2.1\n",
		},
		{
			at + "[error] " + process + "*7 lua entry thread aborted: runtime error\nstack traceback:\n\n\tin f\n",
			"ERROR lua entry thread aborted: runtime error\nERROR stack traceback:\nERROR \tin f\n",
		},
		{
			at + "[notice] " + process + "start worker process 13\nmalloc(): corrupted top size\n",
			"DEBUG start worker process 13\nWARN malloc(): corrupted top size\n",
		},
		{
			at + "[error] " + process + "*7 client sent invalid chunked body\n",
			"DEBUG client sent invalid chunked body\n",
		},
		{ // nginx writes the path and the headers as the client has sent them
			at + "[error] " + process + "*7 connect() failed, request: \"GET /\u009b31m\u202ea HTTP/1.1\"\n",
			`ERROR connect() failed, request: "GET /\u009b31m\u202ea HTTP/1.1"` + "\n",
		},
		{"[emerg] no end", "WARN [emerg] no end\n"},
		{"", ""},
	} {
		for size := range len(c.in) {
			var out lines
			l := &nginxLog{log: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
			for rest := []byte(c.in); len(rest) > 0; rest = rest[min(size+1, len(rest)):] {
				part := rest[:min(size+1, len(rest))]
				if n, err := l.Write(part); n != len(part) || err != nil {
					t.Fatalf("Write: %d, %v", n, err)
				}
			}
			l.end()
			if got := out.text(t); got != c.want {
				t.Errorf("%q in parts of %d bytes:\n%swant\n%s", c.in, size+1, got, c.want)
			}
		}
	}
}

// A line without end is logged in parts, so that it does not fill the memory.
func TestErrorLogOfNginxWithoutLineEnds(t *testing.T) {
	var out lines
	l := &nginxLog{log: slog.New(slog.NewJSONHandler(&out, nil))}
	for range 3 * maxNginxLine / 1024 {
		_, _ = l.Write(bytes.Repeat([]byte("a"), 1024))
		if cap(l.partial) > 2*maxNginxLine {
			t.Fatalf("%d bytes are held", cap(l.partial))
		}
	}
	part := "WARN " + strings.Repeat("a", maxNginxLine) + "\n"
	if got := out.text(t); got != part+part+part {
		t.Errorf("%d bytes are logged, want %d", len(got), 3*len(part))
	}
}

// The parts of a divided line have the level of its beginning, whatever they contain. The next line has its own.
func TestErrorLogOfNginxDividesALine(t *testing.T) {
	const notice, at = "2026/11/28 10:00:00 [notice] 12#12: ", "2026/11/28 10:00:00 [error] 12#12: "
	long := strings.Repeat("a", maxNginxLine-len(notice))
	for in, want := range map[string]string{
		notice + long + "the rest\n" + at + "next\n": "DEBUG " + long + "\nDEBUG the rest\nERROR next\n",
		notice + long + at + "the rest\nabort\n":     "DEBUG " + long + "\nDEBUG " + at + "the rest\nWARN abort\n",
		notice + long + "\n" + at + "next\n":         "DEBUG " + long + "\nERROR next\n",
	} {
		var out lines
		l := &nginxLog{log: slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))}
		for part := range slices.Chunk([]byte(in), 1024) {
			_, _ = l.Write(part)
		}
		if got := out.text(t); got != want {
			short := strings.NewReplacer(long, "aaa")
			t.Errorf("%q:\n%swant\n%s", short.Replace(in), short.Replace(got), short.Replace(want))
		}
	}
}

// lines are lines of a JSON log.
type lines struct{ bytes.Buffer }

// text returns the levels and the messages.
func (l *lines) text(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for line := range strings.Lines(l.String()) {
		var entry struct{ Level, Msg, From string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.From != "nginx" {
			t.Errorf("%v: %s", err, line)
		}
		fmt.Fprintf(&out, "%s %s\n", entry.Level, entry.Msg)
	}
	return out.String()
}

// The edge logs its policy and the names of its keys at the start and after a reload. It logs no body that is too
// large.
func TestEdgeLogsWhatItHasLoaded(t *testing.T) {
	t.Parallel()
	address := testenv.FreeAddress(t)
	file := write(t, "policy.lua", "return { rules = {} }")
	_, keys, _ := call(t, "keys new --kid k1")
	set := write(t, "keys.json", keys)
	prefix, log := runEdge(t, "--listen", address, "--policy", file, "--token-keys", set)
	loaded := func(text string) {
		t.Helper()
		testenv.Eventually(t, time.Minute, "the edge logs "+text, func() bool { return strings.Contains(log.String(), text) })
	}
	loaded("INF policy: " + file + "; rules: 0; token keys: EdDSA k1, HS256 from=nginx\n")

	for _, body := range []int64{20_000, -1} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/v1/sales/x/orders",
			strings.NewReader(strings.Repeat("x", 20_000)))
		if err != nil {
			t.Fatal(err)
		}
		request.ContentLength, request.Close = body, true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("a body of 20000 bytes: %d", response.StatusCode)
		}
	}

	const oneRule = `return { rules = { { name = "a", key = "ip", rate = "1r/s" } } }`
	if err := os.WriteFile(file, []byte(oneRule), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := call(t, "edge reload --prefix "+prefix); code != exitOK {
		t.Fatalf("reload: exit %d, %s%s", code, out, errOut)
	}
	loaded("INF policy: " + file + "; rules: 1; token keys: EdDSA k1, HS256 from=nginx\n")
	if text := log.String(); strings.Contains(text, "too large") || strings.Contains(text, "ERR") {
		t.Errorf("the log: %s", text)
	}
}
