package queue_test

import (
	"context"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"sluice/backend/queue"
)

// adopt checks a batch that was taken, and adds it to the model.
func (m *model) adopt(rt *rapid.T, b queue.Batch, limit int) {
	available := m.available()
	suspects := 0
	for _, a := range available {
		if a.crashes >= m.cfg.MaxCrashes {
			suspects++
		}
	}
	n := len(b.Messages)
	switch {
	case n > limit, n == 0 && len(available) > 0, n < min(limit, len(available)) && suspects == 0:
		rt.Fatalf("took %d of %d messages, limit %d, suspects %d", n, len(available), limit, suspects)
	case n == 0:
		return
	}
	lease := &modelBatch{deadline: m.now + m.cfg.Lease}
	for _, got := range b.Messages {
		a := m.messages[got.ID]
		if a == nil || !slices.Contains(available, a) || got != a.Message {
			rt.Fatalf("took %v, which was not available", got)
		}
		if a.crashes >= m.cfg.MaxCrashes && n > 1 {
			rt.Fatalf("%v has crashed %d times and is one of %d messages in a batch", got, a.crashes, n)
		}
		if a.state == leased {
			rt.Fatalf("took %v twice in one batch", got)
		}
		a.state, a.batch = leased, b.ID
		lease.ids = append(lease.ids, got.ID)
	}
	m.batches[b.ID] = lease
	m.known = append(m.known, b.ID)
}

// check compares the model with the keys that hold the messages.
func (m *model) check(rt *rapid.T) {
	found := m.q.Locate()
	for id, keys := range found {
		if x := m.messages[id]; x == nil || x.state == gone {
			rt.Fatalf("%s should be in no key, and is in %v", id, keys)
		}
	}
	for _, x := range m.sorted() {
		if x.state == gone {
			continue
		}
		want := x.state
		switch x.state {
		case leased:
			want = x.batch
		case cancelling:
			want = dead
		}
		got := found[x.ID]
		if x.state == delayed && x.due <= m.now && slices.Equal(got, []string{ready}) {
			x.state = ready // promoted meanwhile
			continue
		}
		if !slices.Equal(got, []string{want}) {
			rt.Fatalf("%s should be in %s, and is in %v", x.ID, want, got)
		}
	}
}

// drain takes and acknowledges until the queue is empty.
func (m *model) drain(rt *rapid.T) {
	for range 1000 {
		left := 0
		m.q.Advance(m.cfg.Lease) // all delayed messages are due, and all leases have expired
		m.now += m.cfg.Lease
		for _, x := range m.sorted() {
			if x.state == dead {
				if err := m.q.Queue.RetryDead(context.Background(), x.ID); err != nil {
					rt.Fatalf("retry: %v", err)
				}
				x.state, x.attempts, x.crashes = ready, 0, 0
			}
			if x.state != gone && x.state != cancelling {
				left++
			}
		}
		if left == 0 {
			return
		}
		id := m.nextID()
		m.takeAs(rt, id, 100, "")
		if m.batches[id] != nil {
			lost, err := m.q.Queue.Ack(context.Background(), id)
			m.wantLost(rt, "ack", id, lost, err)
			m.end(id, gone)
		}
		m.check(rt)
	}
	rt.Fatalf("the queue does not drain: %v", m.q.Locate())
}

func (m *model) available() []*modelMessage {
	var a []*modelMessage
	for _, x := range m.messages {
		if x.state == ready || x.state == delayed && x.due <= m.now {
			a = append(a, x)
		}
	}
	return a
}

func (m *model) expire() (leases int) {
	for id, b := range m.batches {
		if b.deadline > m.now {
			continue
		}
		leases++
		m.end(id, ready)
		for _, x := range b.ids {
			m.messages[x].crashes++
		}
		if x := m.messages[b.ids[0]]; len(b.ids) == 1 && x.crashes > m.cfg.MaxCrashes {
			x.state = dead
		}
	}
	return leases
}

func (m *model) end(batch, state string) {
	for _, id := range m.batches[batch].ids {
		m.messages[id].state, m.messages[id].batch = state, ""
	}
	delete(m.batches, batch)
}

func (m *model) sorted() []*modelMessage {
	all := slices.Collect(maps.Values(m.messages))
	slices.SortFunc(all, func(a, b *modelMessage) int { return int(a.ID - b.ID) })
	return all
}

// nextID is not random, so that a failing sequence can be replayed.
func (m *model) nextID() string {
	m.taken++
	return m.takers[m.taken%len(m.takers)].BatchID(m.taken)
}

func (m *model) liveBatch(rt *rapid.T) string {
	var live []string
	for _, id := range m.known {
		if m.batches[id] != nil {
			live = append(live, id)
		}
	}
	if len(live) == 0 {
		rt.Skip("no lease")
	}
	return rapid.SampledFrom(live).Draw(rt, "live batch")
}

func (m *model) anyBatch(rt *rapid.T) string {
	if len(m.known) == 0 {
		rt.Skip("no batch yet")
	}
	return rapid.SampledFrom(m.known).Draw(rt, "batch")
}

func (m *model) deadMessage(rt *rapid.T) *modelMessage {
	var d []*modelMessage
	for _, x := range m.sorted() {
		if x.state == dead || x.state == cancelling {
			d = append(d, x)
		}
	}
	if len(d) == 0 {
		rt.Skip("there is no dead letter")
	}
	return rapid.SampledFrom(d).Draw(rt, "dead")
}
