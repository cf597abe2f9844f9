package spread

import (
	"context"
	"errors"

	"sluice/backend/spread"
)

var errDown = errors.New("the shard is not available")

// stores are both stores as the simulated processes use them. Each call is one atomic step at one store.
type stores interface {
	spread.Segments
	spread.Ledger

	// Buy decides a purchase in a segment, as lua/redis/admit.lua does. A repetition with the same order has the same
	// result.
	Buy(segment int, buyer string, order int64) (verdict, error)
	// Cancel cancels the order of a buyer in SQL and returns its unit to its segment.
	Cancel(segment int, buyer string) error
	Restock(units int64) error
	// Begin, Claim and Load are the steps of a rebuild of a segment, in Redis, SQL and Redis. Load fails if another
	// rebuild began since, or the segment was lost again.
	Begin(segment int) (fence int64, err error)
	Claim(segment int) (spread.Allocation, error)
	Load(segment int, fence int64, claimed spread.Allocation) error

	// Save keeps a copy of a segment. Lose makes a segment unavailable until it is loaded: its server was emptied, or,
	// if old, has the saved copy.
	Save(segment int)
	Lose(segment int, old bool)
	// Truth reads everything at one instant. Difference returns how the stores differ from their specification, if they
	// do.
	Truth() truth
	Difference() string
}

// verdict is the result of Buy.
type verdict string

const (
	accepted verdict = "accepted"
	empty    verdict = "empty" // the segment has no unit
)

// truth is the state of both stores at one instant.
type truth struct {
	Stock       int64
	Allocations []spread.Allocation
	States      []spread.State
	Orders      []map[string]int64 // by segment: buyer to order, not cancelled
	Pending     int64              // restocked units in SQL that no segment has applied yet
}

// free returns the units that no order holds and that are not pending.
func (t truth) free() int64 {
	free := t.Stock - t.Pending
	for _, orders := range t.Orders {
		free -= int64(len(orders))
	}
	return free
}

// model is the specification of both stores: SQL as allocations and orders, Redis as one segment per shard.
type model struct {
	k        int
	stock    int64
	version  int64 // of the sale
	ledger   []spread.Allocation
	restocks []restock
	orders   []map[string]int64 // rows, queues and journals
	segments []spread.State
	replays  []map[string]bool // by segment: buyers whose request Redis recognises, also after a cancellation
	fences   []int64           // of the last rebuild of each segment that began; 0: none since the segment was lost
	fence    int64
}

type restock struct {
	segment        int
	version, units int64
}

func newModel(k int, stock int64) *model {
	m := &model{k: k, stock: stock, version: 1, segments: make([]spread.State, k), fences: make([]int64, k)}
	for _, units := range spread.Divide(stock, k, 0) {
		m.ledger = append(m.ledger, spread.Allocation{Units: units, Version: 1})
		m.orders = append(m.orders, map[string]int64{})
		m.replays = append(m.replays, map[string]bool{})
	}
	return m
}

func (m *model) States(context.Context, spread.Sale) ([]spread.State, error) {
	states := make([]spread.State, m.k)
	for i, s := range m.segments {
		if s.Loaded {
			states[i] = s
			if s.Out != nil {
				out := *s.Out
				states[i].Out = &out
			}
		}
	}
	return states, nil
}

func (m *model) SetApart(_ context.Context, _ spread.Sale, wanted spread.Move) (*spread.Transfer, error) {
	s := &m.segments[wanted.From]
	if !s.Loaded {
		return nil, errDown
	}
	if s.Out == nil {
		units := min(wanted.Units, s.Left)
		if units < 1 {
			return nil, nil
		}
		s.Left -= units
		s.Out = &spread.Transfer{From: wanted.From, To: wanted.To, Units: units, Version: s.Version}
	}
	out := *s.Out
	return &out, nil
}

func (m *model) Apply(_ context.Context, _ spread.Sale, segment int, to spread.Allocation) error {
	s := &m.segments[segment]
	if !s.Loaded {
		return errDown
	}
	if to.Version <= s.Version {
		return nil
	}
	s.Left += to.Units - s.Units
	if s.Out != nil {
		s.Left += s.Out.Units
		s.Out = nil
	}
	s.Units, s.Version = to.Units, to.Version
	return nil
}

func (m *model) Allocations(context.Context, string) ([]spread.Allocation, error) {
	return append([]spread.Allocation(nil), m.ledger...), nil
}

func (m *model) Commit(ctx context.Context, id string, t spread.Transfer) ([]spread.Allocation, error) {
	if m.ledger[t.From].Version == t.Version {
		m.ledger[t.From].Units -= t.Units
		m.ledger[t.From].Version++
		m.ledger[t.To].Units += t.Units
		m.ledger[t.To].Version++
	}
	return m.Allocations(ctx, id)
}

func (m *model) Buy(segment int, buyer string, order int64) (verdict, error) {
	s := &m.segments[segment]
	if !s.Loaded || spread.Home(buyer, m.k) != segment {
		return "", errDown
	}
	if _, again := m.orders[segment][buyer]; again || m.replays[segment][buyer] {
		return accepted, nil
	}
	if s.Left < 1 {
		return empty, nil
	}
	s.Left--
	s.Sold++
	m.orders[segment][buyer], m.replays[segment][buyer] = order, true
	return accepted, nil
}

func (m *model) Cancel(segment int, buyer string) error {
	s := &m.segments[segment]
	if _, has := m.orders[segment][buyer]; !has {
		return nil
	}
	delete(m.orders[segment], buyer)
	if s.Loaded { // else the rebuild does not count the order
		s.Left++
		s.Returns++
	}
	return nil
}

func (m *model) Restock(units int64) error {
	m.stock += units
	m.version++
	for i, share := range spread.Divide(units, m.k, m.version) {
		if share > 0 {
			m.ledger[i].Units += share
			m.ledger[i].Version++
			m.restocks = append(m.restocks, restock{i, m.ledger[i].Version, share})
		}
	}
	return nil
}

func (m *model) Begin(segment int) (int64, error) {
	m.fence++
	m.fences[segment] = m.fence
	m.segments[segment].Loaded = false
	return m.fence, nil
}

func (m *model) Claim(segment int) (spread.Allocation, error) {
	m.ledger[segment].Version++
	return m.ledger[segment], nil
}

func (m *model) Load(segment int, fence int64, claimed spread.Allocation) error {
	s := &m.segments[segment]
	if m.fences[segment] != fence {
		return errDown
	}
	if s.Loaded {
		return nil
	}
	sold := int64(len(m.orders[segment]))
	*s = spread.State{
		Loaded: true, Version: claimed.Version, Units: claimed.Units, Left: claimed.Units - sold, Returns: s.Returns + 1,
		Sold: sold,
	}
	return nil
}

func (m *model) Difference() string { return "" }

func (m *model) Save(int) {}

func (m *model) Lose(segment int, _ bool) {
	m.segments[segment].Loaded, m.fences[segment] = false, 0
	clear(m.replays[segment])
}

func (m *model) Truth() truth {
	t := truth{Stock: m.stock, Allocations: m.ledger, States: m.segments, Orders: m.orders}
	for _, r := range m.restocks {
		if s := m.segments[r.segment]; !s.Loaded || s.Version < r.version {
			t.Pending += r.units
		}
	}
	return t
}
