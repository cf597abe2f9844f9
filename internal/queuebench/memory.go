package queuebench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/internal/loop"
)

// memoryQueue is the baseline: a queue in this process with leases, and without retries, dead letters or durability. It
// is safe for concurrent use.
type memoryQueue struct {
	lease time.Duration
	wake  loop.Wake

	mu    sync.Mutex
	ready []queue.Message
	taken map[string]memoryBatch
}

type memoryBatch struct {
	messages []queue.Message
	deadline time.Time
}

func newMemoryQueue(lease time.Duration) *memoryQueue {
	return &memoryQueue{lease: lease, wake: loop.NewWake(), taken: map[string]memoryBatch{}}
}

func (q *memoryQueue) Push(_ context.Context, messages ...queue.Message) error {
	q.mu.Lock()
	q.ready = append(q.ready, messages...)
	q.mu.Unlock()
	q.wake.Up()
	return nil
}

func (q *memoryQueue) Register(_ context.Context, name string) (queue.Consumer, error) {
	return queue.Consumer(name), nil
}

func (q *memoryQueue) TakeAs(_ context.Context, id string, limit int, ack string) (queue.Batch, bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if again, ok := q.taken[id]; ok {
		return queue.Batch{ID: id, Messages: again.messages}, false, nil
	}
	_, leased := q.taken[ack]
	delete(q.taken, ack)
	if len(q.ready) == 0 {
		q.reclaim()
	}
	n := min(limit, len(q.ready))
	if n == 0 {
		return queue.Batch{}, ack != "" && !leased, nil
	}
	messages := q.ready[:n:n]
	q.ready = q.ready[n:]
	q.taken[id] = memoryBatch{messages, time.Now().Add(q.lease)}
	return queue.Batch{ID: id, Messages: messages}, ack != "" && !leased, nil
}

// reclaim requeues the batches with an expired lease. The caller holds mu.
func (q *memoryQueue) reclaim() {
	for id, b := range q.taken {
		if b.deadline.Before(time.Now()) {
			q.ready = slices.Concat(b.messages, q.ready)
			delete(q.taken, id)
		}
	}
}

func (q *memoryQueue) Release(_ context.Context, id string) (lost bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b, ok := q.taken[id]
	q.ready = slices.Concat(b.messages, q.ready)
	delete(q.taken, id)
	return !ok, nil
}

func (q *memoryQueue) Wait(ctx context.Context, timeout time.Duration) (woken bool, err error) {
	select {
	case <-q.wake:
		return true, nil
	case <-time.After(timeout):
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (q *memoryQueue) Stats(context.Context) (queue.Stats, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := queue.Stats{Ready: int64(len(q.ready)), Leases: int64(len(q.taken))}
	for _, b := range q.taken {
		s.Leased += int64(len(b.messages))
	}
	return s, nil
}

// memorySubject is memoryQueue behind the simplest admission: a counter of units and a set of buyers.
type memorySubject struct {
	line *memoryQueue
	ids  atomic.Uint32

	mu     sync.Mutex
	units  int
	buyers map[string]bool
}

func (s *memorySubject) label() string { return "memory" }
func (s *memorySubject) queue() line   { return s.line }

func (s *memorySubject) open(_ context.Context, stock int, lease time.Duration) error {
	s.reopen(lease)
	s.units, s.buyers = stock, map[string]bool{}
	return nil
}

// reopen starts with an empty queue: the messages are lost with the process that held them.
func (s *memorySubject) reopen(lease time.Duration) { s.line = newMemoryQueue(lease) }

func (s *memorySubject) buy(ctx context.Context, n int) error {
	s.mu.Lock()
	name := buyer(n)
	if s.units == 0 || s.buyers[name] {
		s.mu.Unlock()
		return fmt.Errorf("the purchase of %s was rejected", name)
	}
	s.units--
	s.buyers[name] = true
	s.mu.Unlock()
	m := message(n)
	m.ID = sale.NewOrderID(time.Now(), s.ids.Add(1))
	return s.line.Push(ctx, m)
}

// held measures a separate queue, because the heap of this process has much other data.
func (s *memorySubject) held(ctx context.Context, n int) (float64, error) {
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	q := newMemoryQueue(longLease)
	for i := range n {
		if err := q.Push(ctx, message(i)); err != nil {
			return 0, err
		}
	}
	grown := heap() - before
	runtime.KeepAlive(q)
	return grown / float64(n), ctx.Err()
}

func (s *memorySubject) left(ctx context.Context) (int64, error) {
	stats, err := s.line.Stats(ctx)
	return stats.Ready + stats.Leased, err
}

func (s *memorySubject) used(context.Context) (time.Duration, float64, error) { return 0, -1, nil }
func (s *memorySubject) kill(context.Context) (bool, error)                   { return true, nil }
