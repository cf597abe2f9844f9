package queue_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/backend/queue"
	"sluice/backend/sale"
)

var modelTests = []test{
	{"EveryMessageIsInExactlyOneKey", queue.Config{}, func(t *testing.T, h h) {
		rapid.Check(t, func(rt *rapid.T) {
			m := newModel(rt, t, h.factory)
			rt.Repeat(map[string]func(*rapid.T){
				"":        m.check,
				"push":    m.push,
				"take":    m.take,
				"replay":  m.replay,
				"late":    m.late,
				"ack":     m.ack,
				"release": m.release,
				"extend":  m.extend,
				"advance": m.advance,
				"reclaim": m.reclaim,
				"retry":   m.retry,
				"cancel":  m.cancel,
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

// model is the expected state of the queue after calls of several workers, some of which hold batches that they have
// lost. Where several results are correct, such as the next message of a take, the model checks the result and
// continues with it. All times are multiples of five minutes, so the duration of a call has no effect.
type model struct {
	q        suite
	cfg      queue.Config
	now      time.Duration
	takers   []queue.Consumer
	messages map[sale.OrderID]*modelMessage
	batches  map[string]*modelBatch // leased
	taken    int                    // ids assigned
	known    []string               // every batch id that a worker has held
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

const maxLive = 8 // batches; below the number that an idle take reclaims in one call

func newModel(rt *rapid.T, t testing.TB, f suiteFactory) *model {
	cfg := queue.Config{
		Lease: lease, BackoffBase: 10 * time.Minute, BackoffCap: 40 * time.Minute, Jitter: func() float64 { return 1 },
		MaxAttempts: rapid.IntRange(1, 4).Draw(rt, "max attempts"), MaxCrashes: rapid.IntRange(1, 3).Draw(rt, "max crashes"),
	}
	m := &model{q: f(t, cfg), cfg: cfg, messages: map[sale.OrderID]*modelMessage{}, batches: map[string]*modelBatch{}}
	for i := range 3 {
		consumer, err := m.q.Queue.Register(context.Background(), "taker"+strconv.Itoa(i))
		if err != nil {
			rt.Fatalf("register: %v", err)
		}
		m.takers = append(m.takers, consumer)
	}
	return m
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

// late repeats a take of a batch that has ended.
func (m *model) late(rt *rapid.T) {
	id, ack := m.anyBatch(rt), ""
	if m.batches[id] != nil {
		rt.Skip("it is leased")
	}
	if rapid.Bool().Draw(rt, "with ack") {
		ack = m.anyBatch(rt)
	}
	b, _, err := m.q.Queue.TakeAs(context.Background(), id, rapid.IntRange(1, 5).Draw(rt, "limit"), ack)
	if err != nil || len(b.Messages) > 0 {
		rt.Fatalf("late take of %s: %v, %v", id, b, err)
	}
	m.expire() // like each take that returns nothing
}

func (m *model) ack(rt *rapid.T) {
	id := m.anyBatch(rt)
	var failures []queue.Failure
	for _, x := range m.sorted() { // of this batch or not
		if x.batch == id && rapid.IntRange(0, 2).Draw(rt, "fails") == 0 || rapid.IntRange(0, 19).Draw(rt, "stranger") == 0 {
			failures = append(
				failures,
				queue.Failure{ID: x.ID, Reason: "no", Permanent: rapid.IntRange(0, 5).Draw(rt, "permanent") == 0},
			)
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
