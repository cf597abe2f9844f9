package rebuild

import (
	"strings"

	"sluice/backend/audit"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// account is what is known of one sale while it is rebuilt. It decides, and talks to nobody.
type saleCount struct {
	def   sale.Sale
	sold  int64
	shard keyspace.Shard

	left     int64
	accepted int64 // the highest serial
	slots    map[string]*holding

	queue     []sale.Order // messages that Redis held, the oldest first
	letters   []letter     // dead letters that Redis held
	returned  []any        // ids of cancelled rows whose unit is counted as left
	requeued  []sale.Order // orders that were only a place
	unbacked  []unbacked   // orders without a unit or a place
	removed   []string     // ids of dead letters that are settled
	corrected int
	report    audit.Report
	why       string
	dead      map[sale.OrderID]bool // orders that are dead letters; true: one that holds no unit
}

// holding is what one buyer holds; seen tells that Redis has it right already.
type holding struct {
	held string
	seen bool
}

type letter struct {
	order  sale.Order
	backed bool
}

type unbacked struct {
	order sale.Order
	why   string
}

func newSaleCount(def sale.Sale, sold int64, shard keyspace.Shard) *saleCount {
	return &saleCount{def: def, sold: sold, shard: shard, left: def.Stock, slots: map[string]*holding{}, dead: map[sale.OrderID]bool{}}
}

func (a *saleCount) changed() bool {
	return len(a.requeued) > 0 || len(a.unbacked) > 0 || a.corrected > 0
}

func (a *saleCount) seen(o sale.Order) {
	a.accepted = max(a.accepted, o.Serial)
}

func (a *saleCount) knows(o sale.Order) bool {
	h := a.slots[o.Buyer]
	return h != nil && h.place(o.ID.String()) > 0
}

// row counts an order of SQL: it holds its unit and its place whatever Redis says.
func (a *saleCount) row(o sale.Order) {
	a.seen(o)
	switch {
	case a.knows(o): // cancelled since it was read: it gives its unit back when Redis is verified
		return
	case o.Status == sale.StatusCancelled:
		a.returned = append(a.returned, o.ID.String())
		return
	}
	a.left--
	a.put(o)
}

func (a *saleCount) put(o sale.Order) {
	h := a.slots[o.Buyer]
	if h == nil {
		h = &holding{}
		a.slots[o.Buyer] = h
	}
	h.put(o.ID.String(), o.Slot)
}

// claim counts an order that was accepted and is no row: it gets a unit and a place, together, and waits on the queue or for a person, as before; or it becomes a
// dead letter that holds nothing.
func (a *saleCount) claim(o sale.Order) (sale.Order, bool) {
	a.seen(o)
	h := a.slots[o.Buyer]
	nth := o.Slot
	if h != nil && !h.free(nth) {
		if nth = h.firstFree(); h.count() >= a.def.PerBuyer {
			nth = 0
		}
	}
	switch {
	case nth == 0:
		a.fail(o, "its buyer holds other orders in its place")
	case a.left < 1:
		a.fail(o, "its unit was sold again")
	default:
		o.Slot = nth
		a.left--
		a.put(o)
		return o, true
	}
	return o, false
}

// give leaves an order to a person.
func (a *saleCount) fail(o sale.Order, why string) {
	a.dead[o.ID] = true
	a.unbacked = append(a.unbacked, unbacked{o, why})
}

// orphan finds again an order of which Redis only knew that its buyer holds it.
func (a *saleCount) orphan(o sale.Order) {
	a.accepted++
	o.Serial = a.accepted
	if o, ok := a.claim(o); ok {
		a.requeued = append(a.requeued, o)
	}
}

func (h *holding) split() []string { return strings.Split(h.held, ",") }

func (h *holding) place(id string) int {
	if h.held == id { // the common case
		return 1
	}
	for i, p := range h.split() {
		if p == id {
			return i + 1
		}
	}
	return 0
}

func (h *holding) free(nth int) bool {
	places := h.split()
	return nth > len(places) || places[nth-1] == ""
}

func (h *holding) firstFree() int {
	places := h.split()
	for i, p := range places {
		if p == "" {
			return i + 1
		}
	}
	return len(places) + 1
}

func (h *holding) count() int {
	n := 0
	for _, p := range h.split() {
		if p != "" {
			n++
		}
	}
	return n
}

func (h *holding) put(id string, nth int) {
	h.seen = false
	if h.held == "" && nth == 1 {
		h.held = id
		return
	}
	places := h.split()
	for len(places) < nth {
		places = append(places, "")
	}
	places[nth-1] = id
	h.held = strings.Join(places, ",")
}
