// Package queuetest is the conformance suite of the queue: every driver must pass it. Time does not pass in it but by
// Fixture.Advance, so it never sleeps and leases can be long.
package queuetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
)

// Leaser is what a worker does with a queue.
type Leaser interface {
	TakeAs(ctx context.Context, id string, limit int, ack string) (b queue.Batch, lost bool, err error)
	Ack(ctx context.Context, batchID string, failures ...queue.Failure) (lost bool, err error)
	Release(ctx context.Context, batchID string) (lost bool, err error)
	Extend(ctx context.Context, batchID string) (lost bool, err error)
	Wait(ctx context.Context, timeout time.Duration) (woken bool, err error)
}

// Keeper is what everybody else does with a queue.
type Keeper interface {
	Push(ctx context.Context, messages ...queue.Message) error
	Reclaim(ctx context.Context, limit int) (leases int, err error)
	Stats(ctx context.Context) (queue.Stats, error)
}

// Morgue is what an operator does with dead letters.
type Morgue interface {
	DeadLetters(ctx context.Context, q queue.DeadQuery) (page []queue.DeadLetter, next string, err error)
	DeadLetter(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error)
	RetryDead(ctx context.Context, id sale.OrderID) error
	BeginCancel(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error)
	FinishCancel(ctx context.Context, id sale.OrderID, giveBack bool) error
}

// Queue is all of it.
type Queue interface {
	Leaser
	Keeper
	Morgue
}

// Fixture is one empty queue under test.
type Fixture struct {
	Queue   Queue
	Advance func(d time.Duration)            // makes the queue believe that d has passed
	Locate  func() map[sale.OrderID][]string // every message, and everywhere it is: "ready", "delayed", "dead" or a batch id
	PushRaw func(text string)                // puts a text that may be no message on the queue; nil where RubbishIsBuriedAndBlocksNothing is left out
	Batch   func(id string) (texts []string) // what the queue holds of one batch
}

// Factory makes an empty queue. It is called often, so it should be cheap.
type Factory func(t testing.TB, cfg queue.Config) Fixture

// Without names cases that mean nothing to a driver, as group/name, and why.
type Without map[string]string

// Run runs the suite, without the cases that are named.
func Run(t *testing.T, factory Factory, without ...Without) {
	left := Without{}
	for _, w := range without {
		maps.Copy(left, w)
	}
	defer func() {
		if len(left) > 0 && !t.Failed() {
			t.Errorf("there are no such cases to leave out: %v", left)
		}
	}()
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"lease", leaseTests}, {"reclaim", reclaimTests}, {"failure", failureTests}, {"dead", deadTests}, {"wake", wakeTests},
		{"model", modelTests},
	} {
		for _, c := range group.tests {
			name := group.name + "/" + c.name
			why, skip := left[name]
			delete(left, name)
			t.Run(name, func(t *testing.T) {
				if skip {
					t.Skip(why)
				}
				c.run(t, factory)
			})
		}
	}
}

type test struct {
	name string
	run  func(*testing.T, Factory)
}

const lease = time.Hour // by the fixture's clock

// h is a fixture with the assertions that every test repeats.
type h struct {
	t testing.TB
	Fixture
}

func open(t testing.TB, factory Factory, cfg queue.Config) h {
	t.Helper()
	if cfg.Lease == 0 {
		cfg.Lease = lease
	}
	if cfg.Jitter == nil {
		cfg.Jitter = func() float64 { return 1 }
	}
	return h{t, factory(t, cfg)}
}

// order makes a valid message; ids rise with n.
func order(n int) queue.Message { return orderOf("drop", n) }

func orderOf(saleID string, n int) queue.Message {
	made := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	return queue.Message{
		ID: sale.NewOrderID(made, uint32(n)), SaleID: saleID, Buyer: fmt.Sprintf("buyer %d", n), Nth: 1, Serial: int64(n),
		Status: sale.StatusQueued,
	}
}

func orders(from, to int) []queue.Message {
	var m []queue.Message
	for n := from; n <= to; n++ {
		m = append(m, order(n))
	}
	return m
}

func (h h) push(m ...queue.Message) {
	h.t.Helper()
	if err := h.Queue.Push(h.t.Context(), m...); err != nil {
		h.t.Fatalf("push: %v", err)
	}
}

// take expects that the batch acknowledged, if any, was still leased.
func (h h) take(limit int, ack string) queue.Batch {
	h.t.Helper()
	b, lost, err := h.Queue.TakeAs(h.t.Context(), queue.NewBatchID(), limit, ack)
	if err != nil || lost {
		h.t.Fatalf("take: lost=%v, %v", lost, err)
	}
	return b
}

func (h h) takeExactly(limit int, want ...queue.Message) queue.Batch {
	h.t.Helper()
	b := h.take(limit, "")
	if !slices.Equal(b.Messages, want) {
		h.t.Fatalf("take(%d) gave %v, want %v", limit, ids(b.Messages), ids(want))
	}
	return b
}

func (h h) ack(id string, failures ...queue.Failure) {
	h.t.Helper()
	if lost, err := h.Queue.Ack(h.t.Context(), id, failures...); err != nil || lost {
		h.t.Fatalf("ack: lost=%v, %v", lost, err)
	}
}

func (h h) reclaim(want int) {
	h.t.Helper()
	if n, err := h.Queue.Reclaim(h.t.Context(), 100); err != nil || n != want {
		h.t.Fatalf("reclaim gave back %d leases (%v), want %d", n, err, want)
	}
}

func (h h) stats() queue.Stats {
	h.t.Helper()
	s, err := h.Queue.Stats(h.t.Context())
	if err != nil {
		h.t.Fatalf("stats: %v", err)
	}
	s.OldestAge = 0
	return s
}

func (h h) wantStats(want queue.Stats) {
	h.t.Helper()
	if got := h.stats(); got != want {
		h.t.Fatalf("stats are %+v, want %+v", got, want)
	}
}

func (h h) dead(m queue.Message) queue.DeadLetter {
	h.t.Helper()
	d, err := h.Queue.DeadLetter(h.t.Context(), m.ID)
	if err != nil {
		h.t.Fatalf("dead letter: %v", err)
	}
	return d
}

func ids(m []queue.Message) []uint32 {
	s := make([]uint32, len(m))
	for i := range m {
		s[i] = m[i].ID.Sequence()
	}
	return s
}

func failures(reason string, m ...queue.Message) []queue.Failure {
	f := make([]queue.Failure, len(m))
	for i := range m {
		f[i] = queue.Failure{ID: m[i].ID, Reason: reason}
	}
	return f
}
