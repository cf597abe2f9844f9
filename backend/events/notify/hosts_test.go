package notify

import (
	"testing"
	"testing/synctest"
	"time"
)

// After a message has waited and got no slot, the others do not wait: they would occupy the process one after the other.
// They return one after the other.
func TestMessagesToABusyHostDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hosts{byName: map[string]*host{}}
		begun := time.Now()
		acquire := func() (release func(), later, waited time.Duration) {
			from := time.Now()
			release, later = h.acquire(t.Context(), "https://Push.example/1", hostWait)
			return release, later, time.Since(from)
		}
		var releases []func()
		for range perHost {
			release, _, _ := acquire()
			releases = append(releases, release)
		}
		for n := range 1000 {
			release, later, waited := acquire()
			if release != nil || later != time.Duration(n)*hostSpacing || (waited > 0) != (n == 0) {
				t.Fatalf("message %d beyond %d waited %s, and returns after %s", n, perHost, waited, later)
			}
		}
		if time.Since(begun) != hostWait {
			t.Errorf("the messages waited %s", time.Since(begun))
		}
		releases[0]()
		if releases[0], _, _ = acquire(); releases[0] == nil {
			t.Error("a message does not get a free slot of a busy host")
		}
		<-time.After(hostBusy)
		if release, _, waited := acquire(); release != nil || waited != hostWait {
			t.Errorf("after %s a message waited %s", hostBusy, waited)
		}
		other, _ := h.acquire(t.Context(), "https://other.example/1", hostWait)
		for _, release := range append(releases, other) {
			release()
		}
		if len(h.byName) > 0 {
			t.Errorf("%d hosts without messages are stored", len(h.byName))
		}
	})
}
