package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// DefaultCapacity is how many messages may be ready in a Memory where nothing else is said; a message takes about 100 bytes.
const DefaultCapacity = 100_000

// Memory is the queue of one shard in this process: bounded, with leases, retries and dead letters as List has them. It is for tests, and for programs that
// embed a sale and may lose it. Whatever it holds is gone when the process ends: messages that are ready, delayed or leased, the dead ones, and what was
// counted of failures. So an order that is only here must not be promised to anybody for longer than the process lives; see Till.
//
// Time is that of the process's monotonic clock. It is safe for concurrent use.
type Memory struct {
	cfg      Config
	capacity int
	now      func() time.Time
	wake     chan struct{} // at most one token

	mu       sync.Mutex
	space    chan struct{} // closed when there is room again; nil: nobody waits for it
	front    []Message     // what came back; the next one last
	back     []Message     // what was pushed, the next one first
	delayed  []delayedMessage
	batches  map[string]*memoryBatch
	attempts map[sale.OrderID][]Attempt
	crashes  map[sale.OrderID]int
	letters  map[string]DeadLetter
	giveBack func(Message)
}

type delayedMessage struct {
	Message

	due time.Time
}

type memoryBatch struct {
	messages []Message
	deadline time.Time
}

// NewMemory makes an empty queue in which at most capacity messages are ready; 0 is DefaultCapacity. What comes back may exceed it.
func NewMemory(capacity int, cfg Config) *Memory {
	if capacity <= 0 {
		capacity = DefaultCapacity
	}
	return &Memory{
		cfg: cfg.withDefaults(), capacity: capacity, now: time.Now, wake: make(chan struct{}, 1), batches: map[string]*memoryBatch{},
		attempts: map[sale.OrderID][]Attempt{}, crashes: map[sale.OrderID]int{}, letters: map[string]DeadLetter{}, giveBack: func(Message) {},
	}
}

// Lease is how long a batch may be kept without extending it.
func (q *Memory) Lease() time.Duration { return q.cfg.Lease }

// Push puts messages at the end of the queue, the first one first, and waits while it is full: whoever pushes is held back to the pace of those who take. A message
// that is not valid is an error, and then none is pushed. When ctx ends, those that had room are in the queue, and the error wraps that of ctx.
func (q *Memory) Push(ctx context.Context, messages ...Message) error {
	for _, m := range messages {
		if _, err := keyspace.DecodeMessage(keyspace.EncodeMessage(m)); err != nil {
			return fmt.Errorf("queue: push %s: %w", m.ID, err)
		}
	}
	for len(messages) > 0 {
		q.mu.Lock()
		n := min(len(messages), q.capacity-q.ready())
		if n > 0 {
			q.back = append(q.back, messages[:n]...)
			messages = messages[n:]
			q.signal()
			q.mu.Unlock()
			continue
		}
		if q.space == nil {
			q.space = make(chan struct{})
		}
		space := q.space
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			return fmt.Errorf("queue: push: it is full, and %d messages wait: %w", len(messages), ctx.Err())
		case <-space:
		}
	}
	return nil
}

// Offer is Push of one message that does not wait: false means that the queue is full.
func (q *Memory) Offer(m Message) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ready() >= q.capacity {
		return false
	}
	q.back = append(q.back, m)
	q.signal()
	return true
}

// Wait blocks until there may be something to take (true), or until timeout has passed or ctx ends (false).
func (q *Memory) Wait(ctx context.Context, timeout time.Duration) (woken bool, err error) {
	t := time.NewTimer(timeout)
	defer t.Stop()
	select {
	case <-q.wake:
		return true, nil
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, fmt.Errorf("queue: wait: %w", ctx.Err())
	}
}

// Stats counts the queue.
func (q *Memory) Stats(context.Context) (Stats, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := Stats{Ready: int64(q.ready()), Delayed: int64(len(q.delayed)), Leases: int64(len(q.batches)), Dead: int64(len(q.letters))}
	oldest := func(m Message) { s.OldestAge = max(s.OldestAge, q.now().Sub(m.CreatedAt()).Truncate(time.Second)) }
	if s.Ready > 0 {
		oldest(q.at(0))
	}
	if s.Delayed > 0 {
		oldest(q.delayed[0].Message)
	}
	for _, b := range q.batches {
		s.Leased += int64(len(b.messages))
		oldest(b.messages[0])
	}
	return s, nil
}

// The methods below are called with mu held.

func (q *Memory) ready() int { return len(q.front) + len(q.back) }

// at is the i-th of the ready messages, from 0.
func (q *Memory) at(i int) Message {
	if i < len(q.front) {
		return q.front[len(q.front)-1-i]
	}
	return q.back[i-len(q.front)]
}

func (q *Memory) pop(n int) []Message {
	taken := make([]Message, n)
	for i := range taken {
		taken[i] = q.at(i)
	}
	front := min(n, len(q.front))
	q.front = q.front[:len(q.front)-front]
	q.back = q.back[n-front:] // append moves what is left to the beginning of a new array, sooner or later
	if q.space != nil && q.ready() < q.capacity {
		close(q.space)
		q.space = nil
	}
	return taken
}

// putBack makes messages the next ones, in their order.
func (q *Memory) putBack(messages []Message) {
	for _, m := range slices.Backward(messages) {
		q.front = append(q.front, m)
	}
	if len(messages) > 0 {
		q.signal()
	}
}

func (q *Memory) signal() {
	select {
	case q.wake <- struct{}{}:
	default: // there is a token already
	}
}

// promote makes at most MaxBatch delayed messages ready whose time has come.
func (q *Memory) promote() {
	n, now := 0, q.now()
	for n < min(len(q.delayed), MaxBatch) && !q.delayed[n].due.After(now) {
		n++
	}
	due := make([]Message, n)
	for i := range due {
		due[i] = q.delayed[i].Message
	}
	q.delayed = slices.Delete(q.delayed, 0, n)
	q.putBack(due)
}

func (q *Memory) forget(m Message) {
	delete(q.attempts, m.ID)
	delete(q.crashes, m.ID)
}
