package queue_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
)

// suite is one empty queue under test. Time passes only through Advance, so the conformance suite never sleeps.
type suite struct {
	Queue   *queue.List
	Advance func(d time.Duration)            // advances the clock of the queue
	Locate  func() map[sale.OrderID][]string // where each message is: "ready", "delayed", "dead" or a batch id
	PushRaw func(text string)                // queues a text that need not be a message
	Batch   func(id string) (texts []string) // the texts that a batch holds
}

// suiteFactory returns an empty queue. The suite calls it for each test.
type suiteFactory func(t testing.TB, cfg queue.Config) suite

// runSuite runs the conformance suite over the queues that factory returns.
func runSuite(t *testing.T, factory suiteFactory) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"lease", leaseTests}, {"late", lateTests}, {"reclaim", reclaimTests}, {"failure", failureTests},
		{"dead", deadTests}, {"wake", wakeTests}, {"model", modelTests},
	} {
		for _, c := range group.tests {
			t.Run(group.name+"/"+c.name, func(t *testing.T) { c.run(t, open(t, factory, c.cfg)) })
		}
	}
}

// test runs over a queue with this Config.
type test struct {
	name string
	cfg  queue.Config
	run  func(*testing.T, h)
}

const lease = time.Hour // by the fixture's clock

// h is a suite with assertions.
type h struct {
	t testing.TB
	suite
	factory suiteFactory
}

func open(t testing.TB, factory suiteFactory, cfg queue.Config) h {
	t.Helper()
	if cfg.Lease == 0 {
		cfg.Lease = lease
	}
	if cfg.Jitter == nil {
		cfg.Jitter = func() float64 { return 1 }
	}
	return h{t, factory(t, cfg), factory}
}

// order returns a valid message. Ids rise with n.
func order(n int) queue.Message { return orderOf("drop", n) }

func orderOf(saleID string, n int) queue.Message {
	made := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	return queue.Message{
		ID: sale.NewOrderID(made, uint32(n)), SaleID: saleID, Buyer: fmt.Sprintf("buyer %d", n), Slot: 1, Serial: int64(n),
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

func (h h) newConsumer() queue.Consumer {
	h.t.Helper()
	consumer, err := h.Queue.Register(h.t.Context(), queue.NewConsumerName())
	if err != nil {
		h.t.Fatalf("register: %v", err)
	}
	return consumer
}

// newBatch returns the first batch id of a new consumer.
func (h h) newBatch() string {
	h.t.Helper()
	return h.newConsumer().BatchID(1)
}

// take leases up to limit messages and fails the test if the lease of batch ack had expired.
func (h h) take(limit int, ack string) queue.Batch {
	h.t.Helper()
	b, lost, err := h.Queue.TakeAs(h.t.Context(), h.newBatch(), limit, ack)
	if err != nil || lost {
		h.t.Fatalf("take: lost=%v, %v", lost, err)
	}
	return b
}

func (h h) takeExactly(limit int, want ...queue.Message) queue.Batch {
	h.t.Helper()
	b := h.take(limit, "")
	if !slices.Equal(b.Messages, want) {
		h.t.Fatalf("take(%d) returned %v, want %v", limit, ids(b.Messages), ids(want))
	}
	return b
}

func (h h) ack(id string, failures ...queue.Failure) {
	h.t.Helper()
	if lost, err := h.Queue.Ack(h.t.Context(), id, failures...); err != nil || lost {
		h.t.Fatalf("ack: lost=%v, %v", lost, err)
	}
}

func (h h) release(id string) {
	h.t.Helper()
	if lost, err := h.Queue.Release(h.t.Context(), id); err != nil || lost {
		h.t.Fatalf("release: lost=%v, %v", lost, err)
	}
}

func (h h) extend(id string) {
	h.t.Helper()
	if lost, err := h.Queue.Extend(h.t.Context(), id); err != nil || lost {
		h.t.Fatalf("extend: lost=%v, %v", lost, err)
	}
}

// crash leases messages until the lease expires and is reclaimed.
func (h h) crash(limit int, want ...queue.Message) {
	h.t.Helper()
	h.takeExactly(limit, want...)
	h.Advance(lease)
	h.reclaim(1)
}

func (h h) reclaim(want int) {
	h.t.Helper()
	if n, err := h.Queue.Reclaim(h.t.Context(), 100); err != nil || n != want {
		h.t.Fatalf("reclaim returned %d leases (%v), want %d", n, err, want)
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

func (h h) retry(m queue.Message) {
	h.t.Helper()
	if err := h.Queue.RetryDead(h.t.Context(), m.ID); err != nil {
		h.t.Fatalf("retry: %v", err)
	}
}

// letters returns the dead letters of every page.
func (h h) letters(q queue.DeadQuery) (all []queue.DeadLetter) {
	h.t.Helper()
	for {
		page, next, err := h.Queue.DeadLetters(h.t.Context(), q)
		if err != nil {
			h.t.Fatalf("dead letters: %v", err)
		}
		if limit := cmp.Or(q.Limit, 100); len(page) > limit {
			h.t.Fatalf("a page of %d letters, limit %d", len(page), limit)
		}
		all = append(all, page...)
		if q.After = next; next == "" {
			return all
		}
	}
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
