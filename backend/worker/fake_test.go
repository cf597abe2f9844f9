package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

const leaseTime = 9 * time.Second

func order(n int) sale.Order {
	return sale.Order{
		ID: sale.NewOrderID(sale.Epoch, uint32(n)), SaleID: "drop", Buyer: fmt.Sprintf("buyer %d", n), Slot: 1,
		Serial: int64(n), Status: sale.StatusQueued,
	}
}

func orders(n int) []sale.Order {
	var all []sale.Order
	for i := 1; i <= n; i++ {
		all = append(all, order(i))
	}
	return all
}

// fakeQueue returns the batches of a test, and records the calls of the worker.
type fakeQueue struct {
	mu        sync.Mutex
	batches   [][]sale.Order
	calls     []string
	failures  []queue.Failure
	released  []string
	ids       []string
	consumers []string // names that were registered
	acks      []string
	extended  int
	waits     int
	empty     bool          // the answer of Empty
	wake      chan struct{} // ends a wait; may be nil

	registerErrs []error                          // for one call each
	takeErrs     []error                          // for one call each
	ackErrs      []error                          // for one call with failures each
	ended        func() (lost bool)               // for Ack with failures and Release; nil: never lost
	extend       func(n int) (lost bool, e error) // by its count; nil: never lost
	emptied      chan struct{}                    // receives when a take finds nothing
}

func newQueue(batches ...[]sale.Order) *fakeQueue {
	return &fakeQueue{batches: batches, emptied: make(chan struct{}, 1)}
}

func (q *fakeQueue) note(format string, args ...any) {
	q.calls = append(q.calls, fmt.Sprintf(format, args...))
}

func (q *fakeQueue) Register(_ context.Context, name string) (queue.Consumer, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.consumers = append(q.consumers, name)
	if len(q.registerErrs) > 0 {
		err := q.registerErrs[0]
		q.registerErrs = q.registerErrs[1:]
		return "", err
	}
	return queue.Consumer(name + "-1"), nil
}

func (q *fakeQueue) TakeAs(_ context.Context, id string, _ int, ack string) (queue.Batch, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ids, q.acks = append(q.ids, id), append(q.acks, ack)
	if len(q.takeErrs) > 0 {
		err := q.takeErrs[0]
		q.takeErrs = q.takeErrs[1:]
		if err != nil {
			q.note("take fails")
			return queue.Batch{}, false, err
		}
	}
	if ack != "" {
		q.note("ack")
	}
	if len(q.batches) == 0 {
		select {
		case q.emptied <- struct{}{}:
		default:
		}
		return queue.Batch{}, false, nil
	}
	b := queue.Batch{ID: id, Messages: q.batches[0]}
	q.batches = q.batches[1:]
	q.note("take %d", len(b.Messages))
	return b, false, nil
}

func (q *fakeQueue) Ack(_ context.Context, _ string, failures ...queue.Failure) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.ackErrs) > 0 && len(failures) > 0 {
		err := q.ackErrs[0]
		q.ackErrs = q.ackErrs[1:]
		q.note("ack fails")
		return false, err
	}
	if len(failures) == 0 {
		q.note("ack")
	} else {
		q.note("ack, %d failed", len(failures))
	}
	if len(failures) > 0 && q.ended != nil && q.ended() {
		return true, nil
	}
	q.failures = append(q.failures, failures...)
	return false, nil
}

func (q *fakeQueue) Release(_ context.Context, id string) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.note("release")
	q.released = append(q.released, id)
	return q.ended != nil && q.ended(), nil
}

func (q *fakeQueue) Extend(context.Context, string) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.extended++
	if q.extend == nil {
		return false, nil
	}
	return q.extend(q.extended)
}

func (q *fakeQueue) Wait(_ context.Context, timeout time.Duration) (bool, error) {
	q.mu.Lock()
	q.waits++
	q.mu.Unlock()
	select {
	case <-q.wake:
		return true, nil
	case <-time.After(timeout): // of the bubble's clock
		return false, nil
	}
}

func (q *fakeQueue) Empty(context.Context) (bool, error) { return q.empty, nil }

func (q *fakeQueue) Lease() time.Duration { return leaseTime }

// storeFunc is a store that is one function.
type storeFunc func(ctx context.Context, orders []sale.Order) error

func (f storeFunc) Write(ctx context.Context, orders []sale.Order) error { return f(ctx, orders) }

// ledger is a store that records the orders.
type ledger struct {
	mu     sync.Mutex
	rows   []sale.OrderID
	writes int
	refuse func(orders []sale.Order) error
}

func (l *ledger) Write(_ context.Context, orders []sale.Order) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
	if l.refuse != nil {
		if err := l.refuse(orders); err != nil {
			return err
		}
	}
	for _, o := range orders {
		l.rows = append(l.rows, o.ID)
	}
	return nil
}

// counts implements Metrics.
type counts struct {
	mu      sync.Mutex
	kinds   map[string]int
	lost    int
	written int
	paused  map[string]int // pauses begun, by kind
	waiting int            // loops in a pause
}

func (c *counts) Paused(kind string, loops int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused == nil {
		c.paused = map[string]int{}
	}
	c.waiting += loops
	if loops > 0 {
		c.paused[kind]++
	}
}

func (c *counts) BatchWritten(orders int, _ time.Duration) {
	c.mu.Lock()
	c.written += orders
	c.mu.Unlock()
}
func (c *counts) LeaseLost() { c.mu.Lock(); c.lost++; c.mu.Unlock() }
func (c *counts) Failed(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds == nil {
		c.kinds = map[string]int{}
	}
	c.kinds[kind]++
}

var errDown = fmt.Errorf("connection refused: %w", sale.ErrUnavailable)

// start runs a worker with one loop; stop ends it and waits.
func start(t *testing.T, q worker.Queue, s worker.Store, cfg worker.Config) (stop func()) {
	t.Helper()
	cfg.Concurrency = 1
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return testenv.Run(t, worker.New(q, s, cfg).Run)
}

func (q *fakeQueue) wantCalls(t *testing.T, want ...string) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.Equal(q.calls, want) {
		t.Errorf("the worker did %q, want %q", q.calls, want)
	}
}

var errOdd = errors.New("odd")
