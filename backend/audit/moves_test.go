package audit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/test/testenv"
)

// between runs moves before every command of an audit except scripts.
type between struct {
	mu    sync.Mutex
	calls int
	moves func()
}

func (b *between) process(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	b.mu.Lock()
	b.calls++
	if b.moves != nil && !strings.HasPrefix(cmd.Name(), "eval") { // the list of leases must be current for the script
		b.moves()
	}
	b.mu.Unlock()
	return next(ctx, cmd)
}

// Orders change between any two commands of the audit: bought, taken, written, acknowledged, released, failed, retried,
// cancelled. Each audit balances. With a missing unit, none does.
func TestAuditIsExactDuringChanges(t *testing.T) {
	s := open(t, 100_000)
	other := s.redis // changes the data
	hook := &between{}
	seen := testenv.NewClient(redisconn.Addr(other))
	t.Cleanup(func() { _ = seen.Close() })
	seen.AddHook(testenv.Commands(hook.process))
	stock := admission.NewStock(admission.StockConfig{Client: seen, Space: keyspace.Space{}})
	checker := audit.New(stock, s.store)
	m := &mover{shop: s, random: rand.New(rand.NewPCG(1, 2)), batches: map[string]queue.Batch{}}
	for range 5000 { // more than one read returns
		m.buy()
	}
	hook.moves = func() {
		for range m.random.IntN(4) {
			m.move()
		}
	}
	const rounds = 40
	for round := range rounds {
		r, err := checker.Audit(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		if !r.Balanced {
			t.Fatalf("round %d: %+v", round, r)
		}
	}
	if hook.calls < rounds*4 || m.done["release"] == 0 || m.done["retry"] == 0 || m.done["cancel"] == 0 ||
		m.done["write"] == 0 {
		t.Errorf("too few changes: %d commands, %v", hook.calls, m.done)
	}
	want := func(what string, balanced bool) {
		t.Helper()
		hook.moves = func() { m.move() }
		if r, err := checker.Audit(t.Context(), "s"); err != nil || r.Balanced != balanced {
			t.Errorf("%s: balanced %v, %v", what, r.Balanced, err)
		}
		hook.moves = nil
	}
	hook.moves = nil
	add := func(units int64) {
		t.Helper()
		if err := other.IncrBy(t.Context(), keyspace.Shard(0).Stock("s"), units).Err(); err != nil {
			t.Fatal(err)
		}
	}
	add(-1)
	want("a unit is missing", false)
	add(1)
	want("the unit is back", true)
	m.buy()
	got := other.LPop(t.Context(), keyspace.Shard(0).Ready()).Val() // not written yet
	if !strings.HasSuffix(got, fmt.Sprint("buyer", m.n)) {
		t.Fatalf("the newest message is %q", got)
	}
	want("a message is missing", false)
}

// mover performs random operations on orders.
type mover struct {
	*shop
	random  *rand.Rand
	n       int
	batches map[string]queue.Batch
	dead    []sale.OrderID
	done    map[string]int
}

func (m *mover) buy() {
	m.n++
	m.shop.buy(fmt.Sprint("buyer", m.n))
}

func (m *mover) did(what string, err error) {
	if m.done == nil {
		m.done = map[string]int{}
	}
	m.done[what]++
	if err != nil {
		m.t.Errorf("%s: %v", what, err)
	}
}

func (m *mover) move() {
	ctx := m.t.Context()
	batch := func() (queue.Batch, bool) {
		for id, b := range m.batches {
			delete(m.batches, id)
			return b, true
		}
		return queue.Batch{}, false
	}
	switch m.random.IntN(9) {
	case 0, 1:
		m.buy()
	case 2, 3:
		b, _, err := queuetest.Take(ctx, m.queue, 1+m.random.IntN(40), "")
		m.did("take", err)
		if len(b.Messages) > 0 {
			m.batches[b.ID] = b
		}
	case 4, 5:
		if b, ok := batch(); ok {
			m.did("write", m.store.Write(ctx, b.Messages))
			if m.random.IntN(3) > 0 { // else the acknowledgement is late
				_, err := m.queue.Ack(ctx, b.ID)
				m.did("ack", err)
			}
		}
	case 6:
		if b, ok := batch(); ok {
			_, err := m.queue.Release(ctx, b.ID)
			m.did("release", err)
		}
	case 7:
		if b, ok := batch(); ok {
			m.did("write", m.store.Write(ctx, b.Messages[1:]))
			id := b.Messages[0].ID
			_, err := m.queue.Ack(ctx, b.ID, queue.Failure{ID: id, Reason: "no", Permanent: true})
			m.did("die", err)
			m.dead = append(m.dead, id)
		}
	case 8:
		if len(m.dead) == 0 {
			return
		}
		id := m.dead[0]
		m.dead = m.dead[1:]
		if m.random.IntN(2) == 0 {
			m.did("retry", m.queue.RetryDead(ctx, id))
			return
		}
		letter, err := m.queue.BeginCancel(ctx, id)
		m.did("begin", err)
		wasRow, err := m.store.CancelDead(ctx, store.DeadOrder{Order: letter.Message})
		m.did("cancel", err)
		// The row of an order that was written before its lease expired keeps the unit.
		m.did("finish", m.queue.FinishCancel(ctx, id, !wasRow))
	}
}

func TestExplainReturnsTheOrders(t *testing.T) {
	s := open(t, 50)
	ctx := t.Context()
	for i := range 10 {
		s.buy(fmt.Sprint("b", i))
	}
	rows := s.take(3)
	if err := s.store.Write(ctx, rows.Messages); err != nil {
		t.Fatal(err)
	}
	if _, err := s.queue.Ack(ctx, rows.ID); err != nil {
		t.Fatal(err)
	}
	if found, err := s.checker.Explain(ctx, spread.Part{SaleID: "s"}); err != nil || len(found) > 0 {
		t.Fatalf("Explain of a balanced sale: %v, %v", found, err)
	}
	ready := keyspace.Shard(0).Ready()
	missing, err := keyspace.DecodeMessage(s.redis.RPop(ctx, ready).Val())
	if err != nil {
		t.Fatal(err)
	}
	unslotted := rows.Messages[1]
	s.redis.HDel(ctx, keyspace.Shard(0).Buyers("s"), unslotted.Buyer)
	r := s.audit()
	if r.Balanced || len(r.Orders) != 2 {
		t.Fatalf("report %+v", r)
	}
	byID := map[sale.OrderID]audit.Difference{}
	for _, d := range r.Orders {
		byID[d.OrderID] = d
	}
	if d := byID[missing.ID]; d.Buyer != missing.Buyer || !strings.Contains(d.Missing, "nor in the queue") {
		t.Errorf("missing message: %+v", d)
	}
	if d := byID[unslotted.ID]; d.Buyer != unslotted.Buyer || d.Found != "is a row" {
		t.Errorf("row without a slot: %+v", d)
	}
}
