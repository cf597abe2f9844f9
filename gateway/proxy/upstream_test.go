package proxy

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func newTestUpstream(t *testing.T) *upstream {
	t.Helper()
	return newUpstream("x", nil, newClock(), newMetrics(nil))
}

func TestSuspectIsTriedByOneRequestAtATime(t *testing.T) {
	u := newTestUpstream(t)
	if !u.enter(false) || !u.enter(false) {
		t.Fatal("a healthy backend accepts only one request")
	}
	u.leave(errBroken)
	if !u.enter(false) {
		t.Fatal("a backend is considered down after one broken connection")
	}
	u.leave(errDial)
	if u.enter(false) {
		t.Fatal("an unreachable backend is tried again before retryAt")
	}
	if !u.enter(true) {
		t.Fatal("the last resort is not tried")
	}
	if u.enter(true) {
		t.Fatal("two requests try a suspect concurrently")
	}
	u.leave(nil)
	if !u.enter(false) || !u.enter(false) {
		t.Fatal("a backend is considered down after it has responded")
	}
	for range maxStrikes {
		u.leave(errTimeout)
	}
	if u.enter(false) {
		t.Fatal("a backend that never responds is not considered down")
	}
	u.retryAt.Store(u.clock.now())
	if !u.enter(false) {
		t.Fatal("a suspect is not tried after retryAt")
	}
}

// The request that tests a suspect may wait for an order. Others must not be refused for as long as that.
func TestSuspectIsTriedAgainWhileOneRequestWaits(t *testing.T) {
	u := newTestUpstream(t)
	u.leave(errDial)
	if !u.enter(true) || u.enter(true) {
		t.Fatal("not exactly one request tries the suspect")
	}
	u.clock.start = u.clock.start.Add(-suspectFor)
	if !u.enter(false) {
		t.Fatal("no other request tries the suspect after suspectFor")
	}
	if u.enter(true) {
		t.Fatal("a third request tries it, too")
	}
}

// Of a failure and a concurrent success, the success may clear the strike before the failure sets suspect.
func TestResponseEndsSuspicionWithoutStrikes(t *testing.T) {
	u := newTestUpstream(t)
	u.suspect.Store(true)
	u.leave(nil)
	if !u.enter(false) || !u.enter(false) {
		t.Error("a backend that responds is considered down")
	}
}

// A request must not try all backends one after the other if each of them times out.
func TestTimeoutIsRetriedWithinTheWindowOnly(t *testing.T) {
	for after, want := range map[time.Duration]bool{
		0: true, retryWindow - 1: true, retryWindow: false, time.Minute: false,
	} {
		if got := retryable(errTimeout, true, after); got != want {
			t.Errorf("timeout after %v: retryable %t, want %t", after, got, want)
		}
		if retryable(errTimeout, false, after) || !retryable(errDial, false, after) ||
			!retryable(errBroken, true, after) || retryable(errBroken, false, after) {
			t.Errorf("after %v: wrong decision for another failure", after)
		}
	}
}

func TestParseUpstream(t *testing.T) {
	for raw, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", "http://backend:8080": "backend:8080", "http://backend": "backend:80",
		"http://[::1]:80/": "[::1]:80", "[::1]:8080": "[::1]:8080",
		"unix:/run/b.sock": "unix:/run/b.sock", "unix:run/b.sock": "", "unix:/a/../b": "", "unix:/a,b": "", "unix:": "",
		"http://unix:/run/b.sock": "",
		"":                        "", "backend": "", ":80": "", "https://backend": "", "http://a/b": "", "http://u:p@a": "", "http://a?x": "",
		"ftp://a": "", "http://": "", "a:b:c": "",
	} {
		got, err := parseUpstream(raw)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", raw, got, err, want)
		}
	}
}

func TestPruneClosesExpiredConnections(t *testing.T) {
	u := newTestUpstream(t)
	u.dial = func(context.Context, string) (net.Conn, error) { c, _ := net.Pipe(); return c, nil }
	for range 2 {
		c, err := u.connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		u.release(c, true)
	}
	u.idle[0].since = -idleFor.Milliseconds() - 1
	expired := u.idle[0]
	u.prune()
	if len(u.idle) != 1 || u.idle[0] == expired {
		t.Errorf("%d idle connections, want the one that has not expired", len(u.idle))
	}
	if _, err := bufio.NewReader(expired).ReadByte(); err == nil {
		t.Error("the expired connection is open")
	}
}

func TestFetchOverAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.sock")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Host+r.URL.Path)
	})}
	go func() { _ = server.Serve(ln) }()
	p, err := New(Config{
		Upstreams: []string{"unix:" + path}, Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.Fetch(t.Context(), "/list")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); string(text) != "localhost/list" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	server.Close()
	if _, err := p.Fetch(t.Context(), "/list"); err == nil || !strings.Contains(err.Error(), "unix:"+path) {
		t.Errorf("without a backend: %v", err)
	}
}
