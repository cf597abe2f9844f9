package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
	orderstore "sluice/backend/store"
	"sluice/backend/worker"
)

func TestBatchIsAcknowledgedWithTheNextTakeAndNeverBeforeItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(orders(3), orders(2))
		stop := start(t, q, storeFunc(func(_ context.Context, o []sale.Order) error {
			time.Sleep(time.Second)
			q.mu.Lock()
			q.note("write %d", len(o))
			q.mu.Unlock()
			return nil
		}), worker.Config{})
		<-q.emptied
		stop()
		q.wantCalls(t, "take 3", "write 3", "ack", "take 2", "write 2", "ack")
	})
}

func TestIdleWorkerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		stop := start(t, q, &ledger{}, worker.Config{Idle: time.Second})
		time.Sleep(100 * time.Second)
		stop()
		if q.waits < 99 || q.waits > 102 {
			t.Errorf("%d waits of one second in 100 seconds", q.waits)
		}
	})
}

// One loop of an idle worker waits in Redis on behalf of all. It takes a batch without a wake-up only if the queue is
// not empty.
func TestIdleLoopsShareOneWait(t *testing.T) {
	for _, empty := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue()
			q.empty = empty
			ctx, cancel := context.WithCancel(t.Context())
			w := worker.New(q, &ledger{}, worker.Config{Concurrency: 4, Log: slog.New(slog.DiscardHandler)})
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			time.Sleep(100*time.Second - time.Millisecond)
			synctest.Wait()
			takes := len(q.ids) - 4 // each loop takes once before it waits
			if q.waits != 100 || empty && takes != 0 || !empty && takes != 99 {
				t.Errorf("%d waits and %d takes in 100 seconds; empty: %t", q.waits, takes, empty)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// A loop that is woken leaves the wait to the next one, so that wake-ups for several loops do not wait for a batch.
func TestWokenLoopLeavesTheWaitToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue()
		q.empty, q.wake = true, make(chan struct{}, 4)
		var writing atomic.Int64
		store := storeFunc(func(context.Context, []sale.Order) error {
			writing.Add(1)
			time.Sleep(time.Hour)
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		w := worker.New(q, store, worker.Config{
			Concurrency: 4, DrainTimeout: 2 * time.Hour, WriteTimeout: 2 * time.Hour, Log: slog.New(slog.DiscardHandler),
		})
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		time.Sleep(time.Minute)
		for n := int64(1); n <= 4; n++ {
			q.mu.Lock()
			q.batches = append(q.batches, orders(1))
			q.mu.Unlock()
			q.wake <- struct{}{}
			synctest.Wait() // no time passes
			if writing.Load() != n {
				t.Errorf("%d loops write after %d wake-ups", writing.Load(), n)
			}
		}
		cancel()
		<-ended
	})
}

// The bisection must cost k*log(n) writes, not n.
func TestOnlyRejectedOrdersFail(t *testing.T) {
	const n = 512
	for _, bad := range [][]int{{1}, {512}, {300}, {7, 8}, {1, 100, 511}, {}} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(orders(n))
			s := &ledger{refuse: func(o []sale.Order) error {
				for _, o := range o {
					if slices.Contains(bad, int(o.ID.Sequence())) {
						return fmt.Errorf("%w: would oversell", orderstore.ErrRejected)
					}
				}
				return nil
			}}
			m := &counts{}
			stop := start(t, q, s, worker.Config{Metrics: m})
			<-q.emptied
			stop()

			var failed []int
			for _, f := range q.failures {
				failed = append(failed, int(f.ID.Sequence()))
				if !f.Permanent || f.Reason == "" {
					t.Errorf("the failure is %+v", f)
				}
			}
			if !slices.Equal(failed, bad) {
				t.Errorf("failed: %v, want %v", failed, bad)
			}
			if len(s.rows) != n-len(bad) || m.written != n-len(bad) || m.kinds[worker.KindRejected] != len(bad) {
				t.Errorf("%d rows, %+v", len(s.rows), m)
			}
			if most := 1 + 2*9*len(bad); s.writes > most {
				t.Errorf("%d writes for %d bad orders, want at most %d", s.writes, len(bad), most)
			}
		})
	}
}

func TestUnknownErrorIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(orders(4))
		stop := start(t, q, &ledger{refuse: func(o []sale.Order) error {
			if slices.Contains(o, order(3)) {
				return errOdd
			}
			return nil
		}}, worker.Config{})
		<-q.emptied
		stop()
		if len(q.failures) != 1 || q.failures[0].ID != order(3).ID || q.failures[0].Permanent {
			t.Errorf("failures: %+v", q.failures)
		}
	})
}

func TestPanicFailsOneOrderAndTheWorkerContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(orders(4), orders(1))
		s := &ledger{}
		stop := start(t, q, storeFunc(func(ctx context.Context, o []sale.Order) error {
			if slices.Contains(o, order(2)) {
				panic("boom")
			}
			return s.Write(ctx, o)
		}), worker.Config{})
		<-q.emptied
		stop()
		if len(q.failures) != 1 || q.failures[0].ID != order(2).ID || q.failures[0].Permanent || len(s.rows) != 4 {
			t.Errorf("failures: %+v, %d rows", q.failures, len(s.rows))
		}
	})
}

func TestUnavailableStoreCountsNoAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, m, s := newQueue(orders(5)), &counts{}, &ledger{}
		began := time.Now()
		const outage = 5 * time.Minute
		s.refuse = func([]sale.Order) error {
			switch past := time.Since(began); {
			case past < outage/2:
				return errDown
			case past < outage:
				return fmt.Errorf("no such column: %w", sale.ErrUnavailable)
			}
			return nil
		}
		var log bytes.Buffer
		stop := start(t, q, s, worker.Config{Metrics: m, Log: slog.New(slog.NewTextHandler(&log, nil))})
		<-q.emptied
		if late := time.Since(began) - outage; late > 3*time.Second {
			t.Errorf("written %s after the outage", late)
		}
		stop()
		q.wantCalls(t, "take 5", "ack")
		if want := int(outage / (leaseTime / 3)); q.extended < want-1 {
			t.Errorf("the lease was extended %d times in %s, want %d", q.extended, outage, want)
		}
		if n := m.kinds[worker.KindUnavailable]; n < int(outage/(2*time.Second)) || n > 2000 {
			t.Errorf("%d attempts in %s", n, outage)
		}
		wantLines(t, log.String(), "connection refused", "available again")
	})
}

func TestBisectContinuesAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(orders(4))
		calls := 0
		s := &ledger{refuse: func(o []sale.Order) error {
			if calls++; calls%2 == 0 {
				return errDown
			}
			if slices.Contains(o, order(4)) {
				return orderstore.ErrRejected
			}
			return nil
		}}
		stop := start(t, q, s, worker.Config{})
		<-q.emptied
		stop()
		if len(q.failures) != 1 || q.failures[0].ID != order(4).ID || len(s.rows) != 3 {
			t.Errorf("failures: %+v, rows: %v", q.failures, s.rows)
		}
	})
}

// A rejected order becomes a dead letter and waits for an administrator; another failure is retried.
func TestLogNamesWhatHappensToAFailedOrder(t *testing.T) {
	for want, err := range map[string]error{
		"the database rejects an order, which becomes a dead letter": orderstore.ErrRejected,
		"an order was not written, and is retried":                   errors.New("no such function"),
	} {
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(orders(1))
			var log bytes.Buffer
			stop := start(t, q, &ledger{refuse: func([]sale.Order) error { return err }},
				worker.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
			<-q.emptied
			stop()
			wantLines(t, log.String(), want)
		})
	}
}

func TestSlowWriteKeepsItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(orders(1))
		q.extend = func(n int) (bool, error) {
			if n%2 == 0 {
				return false, errDown // some calls fail
			}
			return false, nil
		}
		stop := start(t, q, storeFunc(func(context.Context, []sale.Order) error {
			time.Sleep(25 * time.Second)
			return nil
		}), worker.Config{})
		<-q.emptied
		stop()
		if q.extended != 8 {
			t.Errorf("extended %d times in 25 s with a lease of %s, want 8", q.extended, leaseTime)
		}
		q.wantCalls(t, "take 1", "ack")
	})
}

func TestLostLeaseStopsTheWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, m := newQueue(orders(2), orders(1)), &counts{}
		q.extend = func(n int) (bool, error) { return n == 2, nil }
		stop := start(t, q, storeFunc(func(ctx context.Context, o []sale.Order) error {
			if len(o) == 1 {
				return nil
			}
			<-ctx.Done()
			return fmt.Errorf("%w: %w", sale.ErrUnavailable, ctx.Err())
		}), worker.Config{Metrics: m})
		<-q.emptied
		stop()
		q.wantCalls(t, "take 2", "take 1", "ack") // the first batch is neither acknowledged nor released
		if m.lost != 1 || len(q.released) > 0 || q.acks[1] != "" {
			t.Errorf("lost %d, released %v, acknowledged %q", m.lost, q.released, q.acks)
		}
	})
}

func TestHangingWriteTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(orders(1))
		hangs := 0
		stop := start(t, q, storeFunc(func(ctx context.Context, _ []sale.Order) error {
			if hangs++; hangs < 3 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}), worker.Config{WriteTimeout: time.Minute})
		<-q.emptied
		stop()
		q.wantCalls(t, "take 1", "ack")
	})
}

func TestFailedTakeIsRepeatedWithTheSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, m := newQueue(orders(3), orders(1)), &counts{}
		q.takeErrs = []error{errDown, errDown}
		var log bytes.Buffer
		stop := start(t, q, &ledger{}, worker.Config{Metrics: m, Log: slog.New(slog.NewTextHandler(&log, nil))})
		<-q.emptied
		stop()
		if q.ids[0] != q.ids[1] || q.ids[1] != q.ids[2] {
			t.Errorf("the repeated takes had other ids: %q", q.ids)
		}
		if q.ids[3] == q.ids[2] || q.acks[3] != q.ids[2] {
			t.Errorf("the take after it was %q, acknowledging %q", q.ids[3], q.acks[3])
		}
		if m.kinds[worker.KindQueue] != 2 || m.lost != 0 {
			t.Errorf("counted %+v", m)
		}
		wantLines(t, log.String(), "queue call failed", "queue call works again")
	})
}

// wantLines reports an error unless the log has these lines, and no other.
func wantLines(t *testing.T, log string, parts ...string) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(log), "\n")
	if !slices.EqualFunc(lines, parts, strings.Contains) {
		t.Errorf("the log has\n%s\nwant one line for each of %q", log, parts)
	}
}

// A Redis that has lost the consumers answers ErrUnregistered. The batch that is written stays to be acknowledged.
func TestRemovedConsumerRegistersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(orders(1))
		q.registerErrs = []error{errDown}
		q.takeErrs = []error{queue.ErrUnregistered, nil, errDown, queue.ErrUnregistered}
		stop := start(t, q, &ledger{}, worker.Config{})
		<-q.emptied
		stop()
		q.wantCalls(t, "take fails", "take 1", "take fails", "take fails", "release", "ack")
		if len(q.consumers) != 4 || len(slices.Compact(slices.Sorted(slices.Values(q.consumers)))) != 4 {
			t.Errorf("it registered as %q, want 4 names: one call failed, and two consumers were removed", q.consumers)
		}
		if last := len(q.acks) - 1; q.acks[last] != q.ids[1] || q.ids[last] == q.ids[last-1] {
			t.Errorf("takes %q acknowledge %q", q.ids, q.acks)
		}
		if len(q.released) != 1 || q.released[0] != q.ids[2] {
			t.Errorf("released %q, want the batch of the take without a reply, of %q", q.released, q.ids)
		}
	})
}

func TestFailedAckOfFailuresIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(orders(2))
		q.ackErrs = []error{errDown, errDown}
		stop := start(t, q, &ledger{refuse: func(o []sale.Order) error {
			if slices.Contains(o, order(1)) {
				return orderstore.ErrRejected
			}
			return nil
		}}, worker.Config{})
		<-q.emptied
		stop()
		q.wantCalls(t, "take 2", "ack fails", "ack fails", "ack, 1 failed")
	})
}
