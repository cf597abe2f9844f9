package queue_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
)

var reclaimTests = []test{
	{"CrashAfterTakeLosesNoMessage", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 5)...)
		h.take(3, "")
		h.Advance(lease - time.Minute)
		h.reclaim(0)
		h.Advance(time.Minute)
		h.reclaim(1)
		h.takeExactly(9, orders(1, 5)...)
	}},
	{"ReclaimSkipsLeasesThatHaveNotExpired", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 4)...)
		h.take(2, "")
		h.Advance(lease / 2)
		h.take(2, "")
		h.Advance(lease / 2)
		h.reclaim(1)
		h.wantStats(queue.Stats{Ready: 2, Leased: 2, Leases: 1})
	}},
	{"ReclaimIsBounded", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 5)...)
		for range 5 {
			h.take(1, "")
		}
		h.Advance(lease)
		if n, err := h.Queue.Reclaim(t.Context(), 3); n != 3 || err != nil {
			t.Fatalf("reclaimed %d, %v", n, err)
		}
		h.wantStats(queue.Stats{Ready: 3, Leased: 2, Leases: 2})
	}},
	{"IdleTakeReclaims", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 2)...)
		h.take(2, "")
		h.takeExactly(2)
		h.Advance(lease)
		h.takeExactly(2, orders(1, 2)...)
	}},
	{"LateWorkerDoesNotChangeTheNewLease", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 3)...)
		late := h.take(2, "")
		h.Advance(lease)
		h.reclaim(1)
		h.takeExactly(2, orders(1, 2)...)

		ctx := t.Context()
		for name, call := range map[string]func() (bool, error){
			"ack":     func() (bool, error) { return h.Queue.Ack(ctx, late.ID) },
			"fail":    func() (bool, error) { return h.Queue.Ack(ctx, late.ID, failures("no", late.Messages...)...) },
			"release": func() (bool, error) { return h.Queue.Release(ctx, late.ID) },
			"extend":  func() (bool, error) { return h.Queue.Extend(ctx, late.ID) },
		} {
			if lost, err := call(); !lost || err != nil {
				t.Errorf("%s of a lost batch: lost=%v, %v", name, lost, err)
			}
			h.wantStats(queue.Stats{Ready: 1, Leased: 2, Leases: 1})
		}
		b, lost, err := h.Queue.TakeAs(ctx, h.newBatch(), 5, late.ID)
		if !lost || err != nil || !slices.Equal(b.Messages, orders(3, 3)) {
			t.Errorf("take that acknowledges a lost batch: %v, lost=%v, %v", b, lost, err)
		}
		h.wantStats(queue.Stats{Leased: 3, Leases: 2})
	}},
	{"ConcurrentWatchersReclaimEachLeaseOnce", queue.Config{}, func(t *testing.T, h h) {
		var mu sync.Mutex
		messages := 0
		h = open(t, h.factory, queue.Config{OnReclaim: func(n int) { mu.Lock(); messages += n; mu.Unlock() }})
		h.push(orders(1, 40)...)
		for range 20 {
			h.take(2, "")
		}
		h.Advance(lease)
		leases := 0
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				n, err := h.Queue.Reclaim(t.Context(), 100)
				if err != nil {
					t.Errorf("reclaim: %v", err)
				}
				mu.Lock()
				leases += n
				mu.Unlock()
			})
		}
		wg.Wait()
		if leases != 20 || messages != 40 {
			t.Errorf("%d leases and %d messages were reclaimed, want 20 and 40", leases, messages)
		}
		h.wantStats(queue.Stats{Ready: 40})
	}},
	{"MessageThatCrashesItsWorkersIsLeasedAloneThenDead", queue.Config{MaxCrashes: 3}, func(t *testing.T, h h) {
		h.push(orders(1, 5)...)
		for range 3 {
			h.crash(3, orders(1, 3)...)
		}
		h.ack(h.takeExactly(3, order(1)).ID) // alone, without a crash
		h.crash(3, order(2))                 // alone, and crashes its worker again: dead
		h.ack(h.takeExactly(3, order(3)).ID)
		h.ack(h.takeExactly(3, orders(4, 5)...).ID)
		h.wantStats(queue.Stats{Dead: 1})
		if d := h.dead(order(2)); d.Crashes != 4 || d.Reason != "crashed its worker 4 times" || d.Message != order(2) {
			t.Errorf("the letter is %+v", d)
		}
	}},
	{"CrasherAfterOthersIsLeasedAlone", queue.Config{
		MaxCrashes: 1, BackoffBase: lease / 2, BackoffCap: lease / 2,
	}, func(t *testing.T, h h) {
		h.push(orders(1, 1)...)
		h.crash(1, order(1)) // 1 has crashed once
		b := h.takeExactly(5, order(1))
		h.ack(b.ID, failures("no", order(1))...) // delayed: the crash still counts
		h.push(orders(2, 3)...)
		h.take(1, "") // 2
		h.Advance(lease)
		h.reclaim(1) // 1 and 2 are suspects now
		h.push(order(4))
		var got [][]uint32
		for range 4 {
			got = append(got, ids(h.take(9, "").Messages))
		}
		for _, b := range got {
			if len(b) > 1 && (slices.Contains(b, 1) || slices.Contains(b, 2)) {
				t.Fatalf("a suspect is not alone: %v", got)
			}
		}
	}},
	{"SuccessDeletesTheCrashes", queue.Config{MaxCrashes: 1}, func(t *testing.T, h h) {
		h.push(order(1))
		h.crash(1, order(1))
		b := h.takeExactly(5, order(1))
		h.take(5, b.ID) // done
		h.push(orders(1, 2)...)
		h.takeExactly(5, orders(1, 2)...)
	}},
	{"ReclaimMakesOneDeadLetter", queue.Config{MaxCrashes: 1}, func(t *testing.T, h h) {
		h.push(order(1))
		for range 2 {
			h.crash(1, order(1))
		}
		h.reclaim(0)
		h.wantStats(queue.Stats{Dead: 1})
		if _, err := h.Queue.DeadLetter(t.Context(), order(2).ID); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("a letter that does not exist: %v", err)
		}
	}},
	{"ClockSetAheadCountsOneCrash", queue.Config{}, func(t *testing.T, h h) {
		h.push(orders(1, 2)...)
		owner := h.take(2, "")
		h.Advance(lease + time.Hour) // its worker still runs
		h.reclaim(1)
		h.takeExactly(2, orders(1, 2)...)
		if lost, err := h.Queue.Extend(t.Context(), owner.ID); err != nil || !lost {
			t.Errorf("the former owner: lost=%v, %v", lost, err)
		}
		h.wantStats(queue.Stats{Leased: 2, Leases: 1})
	}},
	{"ClockSetBackDoesNotExtendLeases", queue.Config{BackoffBase: lease, BackoffCap: lease}, func(t *testing.T, h h) {
		h.push(orders(1, 5)...)
		h.take(2, "") // crashes
		b := h.takeExactly(2, orders(3, 4)...)
		h.ack(b.ID, failures("no", order(3))...)
		h.Advance(-9 * lease)
		h.takeExactly(1, order(5)) // crashes too
		h.Advance(lease / 2)
		h.reclaim(0) // leases from before the jump are restarted, and leases from after it are unchanged
		h.Advance(lease/2 - 5*time.Minute)
		h.reclaim(0)
		h.Advance(5 * time.Minute)
		h.reclaim(1)
		h.wantStats(queue.Stats{Ready: 1, Delayed: 1, Leased: 2, Leases: 1})
		h.Advance(lease/2 - 5*time.Minute)
		h.reclaim(0)
		h.Advance(5 * time.Minute)
		h.reclaim(1)
		h.wantStats(queue.Stats{Ready: 4})
	}},
	{"ClockSetBackSlightlyChangesNothing", queue.Config{}, func(t *testing.T, h h) {
		h.push(order(1))
		h.take(1, "")
		h.Advance(-lease / 2)
		h.reclaim(0)
		h.Advance(lease*3/2 - 5*time.Minute)
		h.reclaim(0)
		h.Advance(5 * time.Minute)
		h.reclaim(1)
	}},
}
