package proxy

import (
	"testing"
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

func TestParseUpstream(t *testing.T) {
	for raw, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", "http://backend:8080": "backend:8080", "http://backend": "backend:80",
		"http://[::1]:80/": "[::1]:80", "[::1]:8080": "[::1]:8080",
		"unix:/run/b.sock": "unix:/run/b.sock", "unix:run/b.sock": "", "unix:/a/../b": "", "unix:/a,b": "", "unix:": "",
		"http://unix:/run/b.sock": "",
		"":                        "", "backend": "", ":80": "", "https://backend": "", "http://a/b": "", "http://u:p@a": "", "http://a?x": "",
		"ftp://a": "", "http://": "", "a:b:c": "", "a:http": "", "a:0": "", "a:65535": "a:65535", "a:65536": "", "http://a:-1": "",
	} {
		got, err := parseUpstream(raw)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", raw, got, err, want)
		}
	}
}
