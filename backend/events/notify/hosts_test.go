package notify

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// After a message has waited for a slot and got none, further messages to the host do not wait, because together they
// would occupy the process. They are delayed so that they return one after the other.
func TestMessagesToABusyHostDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosts()
		begun := time.Now()
		acquire := func() (s *slot, delay, waited time.Duration) {
			from := time.Now()
			s, delay = h.acquire(t.Context(), "https://Push.example/1", hostWait)
			return s, delay, time.Since(from)
		}
		var slots []*slot
		for range perHost {
			s, _, _ := acquire()
			slots = append(slots, s)
		}
		for n := range 1000 {
			s, delay, waited := acquire()
			if s != nil || delay != time.Duration(n)*hostSpacing || (waited > 0) != (n == 0) {
				t.Fatalf("message %d beyond %d waited %s, and is delayed by %s", n, perHost, waited, delay)
			}
		}
		if time.Since(begun) != hostWait {
			t.Errorf("the messages waited %s", time.Since(begun))
		}
		for _, s := range slots { // as their results are stored together
			s.release()
		}
		for i := range slots {
			if slots[i], _, _ = acquire(); slots[i] == nil {
				t.Fatal("a message does not get a free slot of a busy host")
			}
		}
		if s, delay, waited := acquire(); s != nil || delay != 1000*hostSpacing || waited > 0 {
			t.Errorf("after all slots were free, a message waited %s, and is delayed by %s", waited, delay)
		}
		<-time.After(hostBusy)
		if s, _, waited := acquire(); s != nil || waited != hostWait {
			t.Errorf("after %s a message waited %s", hostBusy, waited)
		}
		for _, s := range slots {
			s.release()
		}
		<-time.After(2 * hostBusy)
		other, _ := h.acquire(t.Context(), "https://other.example/1", hostWait)
		other.release()
		if len(h.byName) != 1 {
			t.Errorf("%d hosts are stored, want that of the last message", len(h.byName))
		}
	})
}

// Buyers choose the hosts, so any number of them may hang. They leave most of the slots to push services that respond.
func TestHangingHostsDoNotDelayPromptOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosts()
		begun := time.Now()
		acquire := func(name string) (*slot, time.Duration) {
			return h.acquire(t.Context(), "https://"+name+".example/1", hostWait)
		}
		prompt, _ := acquire("prompt")
		prompt.ended(hostWait - 1)
		prompt.release()
		var hanging []*slot
		for n := range 2 * concurrency {
			if s, _ := acquire(fmt.Sprint("hangs-", n%100)); s != nil {
				hanging = append(hanging, s)
			}
		}
		if len(hanging) != perSuspects || time.Since(begun) > 0 {
			t.Errorf("%d messages to hosts that hang have slots after %s", len(hanging), time.Since(begun))
		}
		for n := range 3 {
			if s, delay := acquire("new"); s != nil || delay != time.Duration(n)*hostSpacing {
				t.Errorf("message %d to a new host: slot %v, delayed by %s", n, s != nil, delay)
			}
		}
		if prompt, _ = acquire("prompt"); prompt == nil {
			t.Fatal("a host that has responded promptly gets no slot")
		}
		prompt.ended(hostWait)
		prompt.release()
		if s, _ := acquire("prompt"); s != nil {
			t.Error("after a long request, a host is not suspect")
		}
		for _, s := range hanging {
			s.release()
		}
		if s, _ := acquire("prompt"); s == nil {
			t.Error("a suspect host gets no slot although none is used")
		}
	})
}

// Push services that have responded promptly may use all slots. If they begin to hang, their requests end soon.
func TestRequestsToPromptHostsEndSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosts()
		timeout := func(took time.Duration) time.Duration {
			s, _ := h.acquire(t.Context(), "https://push.example/1", hostWait)
			defer s.release()
			defer s.ended(took)
			return s.timeout()
		}
		if first := timeout(0); first != sendTimeout {
			t.Errorf("the first request to a host has %s, want %s", first, sendTimeout)
		}
		if second := timeout(hostWait); second != promptTimeout {
			t.Errorf("after a short request, the next one has %s, want %s", second, promptTimeout)
		}
		if third := timeout(0); third != sendTimeout {
			t.Errorf("after a long request, the next one has %s, want %s", third, sendTimeout)
		}
	})
}

// Buyers choose the hosts, so there may be many. They are removed when they are no longer used, and not visited for
// each new one.
func TestUnusedHostsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosts()
		prunes, at := 0, 0
		for n := range 10_000 {
			s, _ := h.acquire(t.Context(), fmt.Sprintf("https://%d.example/1", n), hostWait)
			s.ended(0)
			s.release()
			if h.pruneAt != at {
				prunes, at = prunes+1, h.pruneAt
			}
			<-time.After(time.Second)
		}
		if most := 3 * int(promptFor/time.Second); len(h.byName) > most || prunes > 10_000/100 {
			t.Errorf("%d hosts are stored, want at most %d; they were visited %d times", len(h.byName), most, prunes)
		}
	})
}
