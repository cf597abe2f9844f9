package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/sale"
	orders_ "sluice/backend/store"
	"sluice/backend/worker"
)

// fakeSource is a Redis that the test rebuilds.
type fakeSource struct {
	mu         sync.Mutex
	generation int64
	errs       []error // one for each call to RestoreOrders
	skips      []sale.Order
	restored   []sale.OrderID
}

func (s *fakeSource) Generation() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation
}

func (s *fakeSource) rebuild() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
}

func (s *fakeSource) RestoreOrders(_ context.Context, orders []sale.Order) ([]sale.Order, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return nil, err
	}
	for _, o := range orders {
		s.restored = append(s.restored, o.ID)
	}
	return s.skips, nil
}

func (s *fakeSource) wantRestored(t *testing.T, n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.restored) != n {
		t.Errorf("%d orders were restored, want %d", len(s.restored), n)
	}
}

// The store rejects a batch that was taken before a rebuild of Redis; the worker restores its orders until that
// succeeds, and no order fails.
func TestBatchFromBeforeARebuildIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, source := newQueue(orders(3)), &fakeSource{generation: 1, errs: []error{errDown, errDown}}
		store := &ledger{refuse: func([]sale.Order) error { return fmt.Errorf("no: %w", orders_.ErrStale) }}
		stop := start(t, q, store, worker.Config{Source: source})
		<-q.emptied
		stop()
		source.wantRestored(t, 3)
		q.wantCalls(t, "take 3", "release")
		if store.writes != 1 {
			t.Errorf("%d writes", store.writes)
		}
	})
}

// SQL records a rebuild before the heartbeat of the worker detects it. Until then every batch is stale, and the worker
// pauses between them instead of taking and restoring the same orders in a loop.
func TestStaleBatchesArePacedUntilTheRebuildIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 50
		batches := make([][]sale.Order, 2*most)
		for i := range batches {
			batches[i] = orders(1)
		}
		q, source := newQueue(batches...), &fakeSource{generation: 1}
		began, stale := time.Now(), 0
		store := &ledger{refuse: func([]sale.Order) error {
			if source.Generation() > 1 {
				return nil
			}
			if stale++; time.Since(began) >= 400*time.Millisecond || stale == most {
				source.rebuild()
			}
			return orders_.ErrStale
		}}
		stop := start(t, q, store, worker.Config{Source: source, Jitter: func() float64 { return 0.5 }})
		<-q.emptied
		stop()
		if stale > 6 {
			t.Errorf("%d stale batches in 400 ms", stale)
		}
	})
}

// A worker may hold the last copy of an order that cannot be restored, so the log has its id.
func TestOrderThatCannotBeRestoredIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		all := orders(3)
		q, source := newQueue(all), &fakeSource{generation: 1, skips: all[1:2]}
		store := &ledger{refuse: func([]sale.Order) error { return orders_.ErrStale }}
		stop := start(t, q, store, worker.Config{Source: source, Log: slog.New(slog.NewTextHandler(&log, nil))})
		<-q.emptied
		stop()
		if want := "cannot be restored"; strings.Count(log.String(), want) != 1 ||
			!strings.Contains(log.String(), "orders=["+all[1].ID.String()+"]") {
			t.Errorf("the log does not have %q and the order once:\n%s", want, log.String())
		}
	})
}

// The lease of a batch is lost, perhaps because Redis has lost its data, which the worker may not have detected yet.
// The worker may then hold the last copy of the orders. The log has one line about it.
func TestBatchWithALostLeaseIsRestored(t *testing.T) {
	for name, rebuilt := range map[string]bool{"after a rebuild": true, "before a rebuild": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, source := newQueue(orders(3)), &fakeSource{generation: 1}
				q.extend = func(int) (bool, error) {
					if rebuilt {
						source.rebuild()
					}
					return true, nil
				}
				var log bytes.Buffer
				m := &counts{}
				stop := start(t, q, storeFunc(func(ctx context.Context, _ []sale.Order) error { <-ctx.Done(); return ctx.Err() }),
					worker.Config{Source: source, Metrics: m, Log: slog.New(slog.NewTextHandler(&log, nil))})
				<-q.emptied
				stop()
				source.wantRestored(t, 3)
				wantLines(t, log.String(), "restoring orders")
				if m.lost != 1 {
					t.Errorf("%d lost leases were counted", m.lost)
				}
			})
		})
	}
}

// Redis loses its data while the failures of a batch are reported. The failed orders are not rows.
func TestFailuresOfALostBatchAreRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, source := newQueue(orders(3)), &fakeSource{generation: 1}
		q.ackErrs = []error{errDown, errDown}
		q.ended = func() bool { return true }
		stop := start(t, q, &ledger{refuse: func([]sale.Order) error { return orders_.ErrRejected }},
			worker.Config{Source: source})
		<-q.emptied
		stop()
		source.wantRestored(t, 3)
		q.wantCalls(t, "take 3", "ack fails", "ack fails", "ack, 3 failed", "release")
	})
}

// Redis loses its data while a worker without a database stops.
func TestLostBatchThatIsReleasedIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, source, down := newQueue(orders(3)), &fakeSource{generation: 1}, make(chan struct{}, 1000)
		q.ended = func() bool { return true }
		stop := start(t, q, &ledger{refuse: func([]sale.Order) error { down <- struct{}{}; return errDown }},
			worker.Config{Source: source})
		<-down
		stop()
		source.wantRestored(t, 3)
		q.wantCalls(t, "take 3", "release", "release")
	})
}

func TestRestoreThatFailsEndsWithTheDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs := make([]error, 100_000)
		for i := range errs {
			errs[i] = errDown
		}
		q, source := newQueue(orders(3)), &fakeSource{generation: 1, errs: errs}
		stop := start(t, q, &ledger{refuse: func([]sale.Order) error { return orders_.ErrStale }},
			worker.Config{Source: source, DrainTimeout: 6 * time.Second})
		time.Sleep(time.Minute)
		began := time.Now()
		stop()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("stopping took %v", took)
		}
	})
}
