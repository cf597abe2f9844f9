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

// memorySubject is the baseline: a queue in this process with leases, and without retries, dead letters or durability,
// behind the simplest admission, a counter of units and a set of buyers. It is safe for concurrent use.
type memorySubject struct {
	lease time.Duration
	wake  loop.Wake
	ids   atomic.Uint32

	mu     sync.Mutex
	ready  []queue.Message
	taken  map[string]memoryBatch
	units  int
	buyers map[string]bool
}

type memoryBatch struct {
	messages []queue.Message
	deadline time.Time
}

func (*memorySubject) label() string { return "memory" }

func (q *memorySubject) open(_ context.Context, stock int, lease time.Duration) error {
	q.lease, q.wake, q.ready, q.taken = lease, loop.NewWake(), nil, map[string]memoryBatch{}
	q.units, q.buyers = stock, map[string]bool{}
	return nil
}

func (q *memorySubject) Push(_ context.Context, messages ...queue.Message) error {
	q.mu.Lock()
	q.ready = append(q.ready, messages...)
	q.mu.Unlock()
	q.wake.Up()
	return nil
}

func (q *memorySubject) Register(_ context.Context, name string) (queue.Consumer, error) {
	return queue.Consumer(name), nil
}

func (q *memorySubject) TakeAs(_ context.Context, id string, limit int, ack string) (queue.Batch, bool, error) {
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
func (q *memorySubject) reclaim() {
	for id, b := range q.taken {
		if b.deadline.Before(time.Now()) {
			q.ready = slices.Concat(b.messages, q.ready)
			delete(q.taken, id)
		}
	}
}

func (q *memorySubject) Release(_ context.Context, id string) (lost bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b, ok := q.taken[id]
	q.ready = slices.Concat(b.messages, q.ready)
	delete(q.taken, id)
	return !ok, nil
}

func (q *memorySubject) Wait(ctx context.Context, timeout time.Duration) (woken bool, err error) {
	select {
	case <-q.wake:
		return true, nil
	case <-time.After(timeout):
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (q *memorySubject) Stats(context.Context) (queue.Stats, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := queue.Stats{Ready: int64(len(q.ready)), Leases: int64(len(q.taken))}
	for _, b := range q.taken {
		s.Leased += int64(len(b.messages))
	}
	return s, nil
}

func (q *memorySubject) buy(ctx context.Context, n int) error {
	name := buyer(n)
	q.mu.Lock()
	rejected := q.units == 0 || q.buyers[name]
	if !rejected {
		q.units--
		q.buyers[name] = true
	}
	q.mu.Unlock()
	if rejected {
		return fmt.Errorf("the purchase of %s was rejected", name)
	}
	m := message(n)
	m.ID = sale.NewOrderID(time.Now(), q.ids.Add(1))
	return q.Push(ctx, m)
}

// held measures a separate queue, because the heap of this process has much other data.
func (*memorySubject) held(ctx context.Context, n int) (float64, error) {
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := heap()
	q := &memorySubject{}
	for i := range n {
		if err := q.Push(ctx, message(i)); err != nil {
			return 0, err
		}
	}
	grown := heap() - before
	runtime.KeepAlive(q)
	return grown / float64(n), ctx.Err()
}

func (q *memorySubject) left(ctx context.Context) (int64, error) {
	stats, err := q.Stats(ctx)
	return stats.Ready + stats.Leased, err
}

func (*memorySubject) used(context.Context) (time.Duration, float64, error) { return 0, -1, nil }

// kill starts with an empty queue: the messages are lost with the process that held them.
func (q *memorySubject) kill(ctx context.Context) (bool, error) {
	return true, q.open(ctx, 0, q.lease)
}
