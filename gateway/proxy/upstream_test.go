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
		t.Fatal("a third request tries the suspect within suspectFor")
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
