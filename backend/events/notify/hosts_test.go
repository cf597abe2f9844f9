package notify

import (
	"testing"
	"testing/synctest"
	"time"
)

// After a message has waited and got no slot, the others do not wait, because they would occupy the process one after
// the other. They return one after the other.
func TestMessagesToABusyHostDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := hosts{byName: map[string]*host{}}
		begun := time.Now()
		acquire := func() (release func(), delay, waited time.Duration) {
			from := time.Now()
			release, delay = h.acquire(t.Context(), "https://Push.example/1", hostWait)
			return release, delay, time.Since(from)
		}
		var releases []func()
		for range perHost {
			release, _, _ := acquire()
			releases = append(releases, release)
		}
		for n := range 1000 {
			release, delay, waited := acquire()
			if release != nil || delay != time.Duration(n)*hostSpacing || (waited > 0) != (n == 0) {
				t.Fatalf("message %d beyond %d waited %s, and is delayed by %s", n, perHost, waited, delay)
			}
		}
		if time.Since(begun) != hostWait {
			t.Errorf("the messages waited %s", time.Since(begun))
		}
		for _, release := range releases { // as their results are stored together
			release()
		}
		for i := range releases {
			if releases[i], _, _ = acquire(); releases[i] == nil {
				t.Fatal("a message does not get a free slot of a busy host")
			}
		}
		if release, delay, waited := acquire(); release != nil || delay != 1000*hostSpacing || waited > 0 {
			t.Errorf("after all slots were free, a message waited %s, and is delayed by %s", waited, delay)
		}
		<-time.After(hostBusy)
		if release, _, waited := acquire(); release != nil || waited != hostWait {
			t.Errorf("after %s a message waited %s", hostBusy, waited)
		}
		for _, release := range releases {
			release()
		}
		<-time.After(2 * hostBusy)
		other, _ := h.acquire(t.Context(), "https://other.example/1", hostWait)
		other()
		if len(h.byName) != 1 {
			t.Errorf("%d hosts are stored, want that of the last message", len(h.byName))
		}
	})
}
