package sim

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/sale"
)

// number reads a count of Redis; what is not there is 0.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// check holds both stores against the invariants. It is called with every process standing still.
func (w *world) check() {
	w.listen()
	if !w.dirty.Load() {
		return
	}
	w.dirty.Store(false)
	if w.touched.Load() {
		w.touched.Store(false)
		w.checkRows()
	}
	if !w.verified() {
		return // no process reads from this Redis
	}
	at := map[sale.OrderID]spot{}
	for _, shard := range w.space.All() {
		w.queued(shard, at)
	}
	held := map[sale.OrderID]string{}
	for _, s := range w.Shops {
		w.checkSale(s, at, held)
	}
	w.checkOrders(at, held)
}

// checkSale: nothing is oversold, and no buyer holds more than allowed. It adds the orders of buyers to held.
func (w *world) checkSale(s shop, at map[sale.OrderID]spot, held map[sale.OrderID]string) {
	shard := w.space.ShardOf(s.ID)
	out := int64(0)
	for buyer, places := range w.hash(shard.Buyers(s.ID)) {
		n := 0
		for place := range strings.SplitSeq(places, ",") {
			if place == "" {
				continue
			}
			id, err := sale.ParseOrderID(place)
			if err != nil || held[id] != "" {
				w.violate("buyer %s holds %q", buyer, places)
			}
			held[id] = buyer
			n++
		}
		out += int64(n)
		if n > s.PerBuyer {
			w.violate("buyer %s holds %d orders of %s, and may hold %d", buyer, n, s.ID, s.PerBuyer)
		}
	}
	def := w.hash(shard.Sale(s.ID))
	text, err := w.mini.Get(shard.Stock(s.ID))
	if err != nil || def["stock"] == "" {
		return // it is not loaded yet
	}
	left, stock := number(text), number(def["stock"])
	if left < 0 {
		w.violate("oversold: %d units of %s are left", left, s.ID)
	}
	if left+out != stock {
		w.violate("the stock of %s is %d, but %d are left and %d are held", s.ID, stock, left, out)
	}
}

// checkOrders: every order is somewhere, and holds what it should.
func (w *world) checkOrders(at map[sale.OrderID]spot, held map[sale.OrderID]string) {
	for _, id := range slices.Sorted(maps.Keys(held)) {
		if _, isRow := w.rows[id]; at[id].place == "" && !isRow {
			w.violate("order %s of %s is lost: it holds a unit, and is neither queued, nor dead, nor a row", short(id), held[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(at)) {
		switch r, isRow := w.rows[id]; {
		case held[id] != "" || isRow && r.cancelled() || !at[id].unit:
		default:
			w.violate("order %s is in %s and holds no unit", short(id), at[id].place)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.rows)) {
		if r := w.rows[id]; !r.cancelled() && held[id] != r.buyer {
			w.violate("order %s is a row of %s and holds no unit of theirs", short(id), r.buyer)
		}
	}
	if !w.adopted() {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(w.promised)) {
		if r, isRow := w.rows[id]; at[id].place == "" && !isRow || isRow && r.buyer != w.promised[id] {
			w.violate("order %s was accepted for %s, and is lost", short(id), w.promised[id])
		}
	}
}

// answer is an answer that a buyer received.
type answer struct {
	buyer, key string
	d          admission.Decision
}

// listen takes note of the answers that came in.
func (w *world) listen() {
	w.mu.Lock()
	answers := w.answers
	w.answers = nil
	w.mu.Unlock()
	slices.SortFunc(answers, func(a, b answer) int { return strings.Compare(a.buyer+a.key, b.buyer+b.key) })
	for _, a := range answers {
		if a.d.OrderID == 0 {
			continue
		}
		w.dirty.Store(true)
		w.promised[a.d.OrderID] = a.buyer
		if a.d.Outcome == sale.AlreadyBought {
			continue
		}
		w.result.Accepted++
		name := a.buyer + " " + a.key
		if before, again := w.seen[name]; again && before != a.d.OrderID {
			w.violate("buyer %s got order %s for request %s, and then order %s", a.buyer, short(before), a.key,
				short(a.d.OrderID))
		}
		w.seen[name] = a.d.OrderID
	}
}

func (w *world) checkAudit(r audit.Report) {
	if !r.Balanced {
		w.violate("the audit does not balance: %+v", r)
	}
}
