package queue

import (
	"time"

	"sluice/backend/sale"
)

// SetClock makes a Memory go by another clock.
func (q *Memory) SetClock(now func() time.Time) { q.now = now }

// Held is what a batch of a Memory holds.
func (q *Memory) Held(id string) []Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	if b := q.batches[id]; b != nil {
		return b.messages
	}
	return nil
}

// Places is everywhere that each message of a Memory is.
func (q *Memory) Places() map[sale.OrderID][]string {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := map[sale.OrderID][]string{}
	put := func(place string, m Message) { found[m.ID] = append(found[m.ID], place) }
	for i := range q.ready() {
		put("ready", q.at(i))
	}
	for _, d := range q.delayed {
		put("delayed", d.Message)
	}
	for id, b := range q.batches {
		for _, m := range b.messages {
			put(id, m)
		}
	}
	for _, d := range q.letters {
		put("dead", d.Message)
	}
	return found
}
