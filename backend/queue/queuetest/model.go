package queuetest

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/backend/queue"
	"sluice/backend/sale"
)

var modelTests = []test{
	{"EveryMessageIsInExactlyOnePlace", func(t *testing.T, f Factory) {
		rapid.Check(t, func(rt *rapid.T) {
			m := newModel(rt, t, f)
			rt.Repeat(map[string]func(*rapid.T){
				"": m.check, "push": m.push, "take": m.take, "replay": m.replay, "ack": m.ack, "release": m.release, "extend": m.extend,
				"advance": m.advance, "reclaim": m.reclaim, "retry": m.retry, "cancel": m.cancel,
			})
			m.drain(rt)
		})
	}},
}

// The states of a message in the model.
const (
	ready      = "ready"
	delayed    = "delayed"
	leased     = "leased"
	dead       = "dead"
	cancelling = "cancelling"
	gone       = "gone" // done, or cancelled
)

// model is what the queue should be after a sequence of calls by several workers, some of which hold batches that they have
// lost long ago. Where the queue is free to choose (which message comes next), the model checks the choice and adopts it.
// All times are multiples of five minutes, so that the moments the calls themselves take decide nothing.
type model struct {
	q        Fixture
	cfg      queue.Config
	now      time.Duration
	messages map[sale.OrderID]*modelMessage
	batches  map[string]*modelBatch // the live ones
	taken    int                    // ids given out
	known    []string               // every batch id that some worker ever held
}

type modelMessage struct {
	queue.Message
	state             string
	batch             string
	due               time.Duration
	attempts, crashes int
}

type modelBatch struct {
	deadline time.Duration
	ids      []sale.OrderID
}

const maxLive = 8 // batches; below the number that an idle take reclaims at once

func newModel(rt *rapid.T, t testing.TB, f Factory) *model {
	cfg := queue.Config{
		Lease: lease, BackoffBase: 10 * time.Minute, BackoffCap: 40 * time.Minute, Jitter: func() float64 { return 1 },
		MaxAttempts: rapid.IntRange(1, 4).Draw(rt, "max attempts"), MaxCrashes: rapid.IntRange(1, 3).Draw(rt, "max crashes"),
	}
	return &model{q: f(t, cfg), cfg: cfg, messages: map[sale.OrderID]*modelMessage{}, batches: map[string]*modelBatch{}}
}

func (m *model) push(rt *rapid.T) {
	var batch []queue.Message
	for range rapid.IntRange(1, 4).Draw(rt, "n") {
		o := order(len(m.messages) + 1)
		batch = append(batch, o)
		m.messages[o.ID] = &modelMessage{Message: o, state: ready}
	}
	if err := m.q.Queue.Push(context.Background(), batch...); err != nil {
		rt.Fatalf("push: %v", err)
	}
}

func (m *model) take(rt *rapid.T) {
	if len(m.batches) >= maxLive {
		rt.Skip("enough leases")
	}
	limit, id, ack := rapid.IntRange(1, 5).Draw(rt, "limit"), m.nextID(), ""
	if len(m.known) > 0 && rapid.Bool().Draw(rt, "with ack") {
		ack = rapid.SampledFrom(m.known).Draw(rt, "ack")
	}
	m.takeAs(rt, id, limit, ack)
}

func (m *model) takeAs(rt *rapid.T, id string, limit int, ack string) {
	b, lost, err := m.q.Queue.TakeAs(context.Background(), id, limit, ack)
	if err != nil {
		rt.Fatalf("take: %v", err)
	}
	wantLost := ack != "" && m.batches[ack] == nil
	if lost != wantLost {
		rt.Fatalf("take that acknowledges %q: lost=%v, want %v", ack, lost, wantLost)
	}
	if ack != "" && !lost {
		m.end(ack, gone)
	}
	if len(m.available()) == 0 {
		m.expire()
	}
	m.adopt(rt, b, limit)
}

// adopt checks a batch that was taken, and makes it the model's.
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
			rt.Fatalf("took %v, which was not there to take", got)
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

func (m *model) replay(rt *rapid.T) {
	id := m.liveBatch(rt)
	b, lost, err := m.q.Queue.TakeAs(context.Background(), id, rapid.IntRange(1, 5).Draw(rt, "limit"), "")
	if err != nil || lost {
		rt.Fatalf("replayed take: lost=%v, %v", lost, err)
	}
	var got []sale.OrderID
	for _, x := range b.Messages {
		got = append(got, x.ID)
	}
	if b.ID != id || !slices.Equal(got, m.batches[id].ids) {
		rt.Fatalf("replayed take gave %v, want %v", got, m.batches[id].ids)
	}
	m.batches[id].deadline = m.now + m.cfg.Lease
}

func (m *model) ack(rt *rapid.T) {
	id := m.anyBatch(rt)
	var failures []queue.Failure
	for _, x := range m.sorted() { // of this batch or not
		if x.batch == id && rapid.IntRange(0, 2).Draw(rt, "fails") == 0 || rapid.IntRange(0, 19).Draw(rt, "stranger") == 0 {
			failures = append(failures, queue.Failure{ID: x.ID, Reason: "no", Permanent: rapid.IntRange(0, 5).Draw(rt, "permanent") == 0})
		}
	}
	lost, err := m.q.Queue.Ack(context.Background(), id, failures...)
	m.wantLost(rt, "ack", id, lost, err)
	if lost {
		return
	}
	held := m.batches[id].ids
	m.end(id, gone)
	for _, f := range failures {
		x := m.messages[f.ID]
		if !slices.Contains(held, f.ID) {
			continue
		}
		x.attempts++
		if f.Permanent || x.attempts >= m.cfg.MaxAttempts {
			x.state = dead
		} else {
			x.state, x.due = delayed, m.now+min(m.cfg.BackoffCap, m.cfg.BackoffBase<<(x.attempts-1))
		}
	}
}

func (m *model) release(rt *rapid.T) {
	id := m.anyBatch(rt)
	lost, err := m.q.Queue.Release(context.Background(), id)
	m.wantLost(rt, "release", id, lost, err)
	if !lost {
		m.end(id, ready)
	}
}

func (m *model) extend(rt *rapid.T) {
	id := m.anyBatch(rt)
	lost, err := m.q.Queue.Extend(context.Background(), id)
	m.wantLost(rt, "extend", id, lost, err)
	if !lost {
		m.batches[id].deadline = m.now + m.cfg.Lease
	}
}

func (m *model) wantLost(rt *rapid.T, what, id string, lost bool, err error) {
	if want := m.batches[id] == nil; err != nil || lost != want {
		rt.Fatalf("%s of %s: lost=%v, want %v; %v", what, id, lost, want, err)
	}
}

func (m *model) advance(rt *rapid.T) {
	d := time.Duration(rapid.IntRange(1, 15).Draw(rt, "steps")) * 5 * time.Minute
	m.q.Advance(d)
	m.now += d
}

func (m *model) reclaim(rt *rapid.T) {
	n, err := m.q.Queue.Reclaim(context.Background(), 100)
	if want := m.expire(); n != want || err != nil {
		rt.Fatalf("reclaimed %d leases, want %d; %v", n, want, err)
	}
	for _, x := range m.messages {
		if x.state == delayed && x.due <= m.now {
			x.state = ready
		}
	}
}

func (m *model) retry(rt *rapid.T) {
	x := m.deadMessage(rt)
	err := m.q.Queue.RetryDead(context.Background(), x.ID)
	if (err == nil) != (x.state == dead) {
		rt.Fatalf("retry of a %s message: %v", x.state, err)
	}
	if err == nil {
		x.state, x.attempts, x.crashes = ready, 0, 0
	}
}

func (m *model) cancel(rt *rapid.T) {
	x := m.deadMessage(rt)
	if rapid.Bool().Draw(rt, "finish") {
		err := m.q.Queue.FinishCancel(context.Background(), x.ID, true)
		if (err == nil) != (x.state == cancelling) {
			rt.Fatalf("finish of a %s message: %v", x.state, err)
		}
		if err == nil {
			x.state = gone
		}
		return
	}
	d, err := m.q.Queue.BeginCancel(context.Background(), x.ID)
	if err != nil || !d.Cancelling || d.Crashes != x.crashes || len(d.History) != x.attempts {
		rt.Fatalf("begin: %+v, %v; want %d crashes, %d failures", d, err, x.crashes, x.attempts)
	}
	x.state = cancelling
}

// check compares the model with where the messages really are.
func (m *model) check(rt *rapid.T) {
	found := m.q.Locate()
	for id, places := range found {
		if x := m.messages[id]; x == nil || x.state == gone {
			rt.Fatalf("%s should be gone, and is in %v", id, places)
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
			x.state = ready // promoted on the way
			continue
		}
		if !slices.Equal(got, []string{want}) {
			rt.Fatalf("%s should be in %s, and is in %v", x.ID, want, got)
		}
	}
}

// drain works until everything is done: nothing may be left over, and nothing may be stuck.
func (m *model) drain(rt *rapid.T) {
	for range 1000 {
		left := 0
		m.q.Advance(m.cfg.Lease) // everything delayed is due, and every lease has run out
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
	rt.Fatalf("something is stuck: %v", m.q.Locate())
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
	return "batch" + strconv.Itoa(m.taken)
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
		rt.Skip("nobody is dead")
	}
	return rapid.SampledFrom(d).Draw(rt, "dead")
}
