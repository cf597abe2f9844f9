package sim

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/sale"
	"sluice/backend/spread"
)

// number reads a count of Redis; a missing key is 0.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// check checks the invariants of both stores while no process runs.
func (w *world) check() {
	w.listen()
	if !w.dirty.Load() {
		w.stayEmpty()
		w.checkRefusals()
		return
	}
	w.stayEmpty() // until the last step
	w.dirty.Store(false)
	if w.touched.Load() {
		w.touched.Store(false)
		w.checkRows()
	}
	if !w.verified() {
		for _, s := range w.Shops { // units of a lost segment are not on sale
			w.empty[s.ID], w.isEmpty[s.ID] = w.result.Steps, true
		}
		w.refused = nil
		return // no process reads from this Redis
	}
	at := map[sale.OrderID]spot{}
	for _, shard := range w.space.All() {
		w.queued(shard, at)
	}
	held := map[sale.OrderID]string{}
	for _, s := range w.Shops {
		w.checkSale(s, held)
	}
	w.checkOrders(at, held)
	w.checkRefusals()
}

// checkRefusals verifies that a sale with several segments was sold out at some instant of each purchase that was
// refused as sold out.
func (w *world) checkRefusals() {
	for _, a := range w.refused {
		if w.empty[a.shop.ID] < a.asked {
			w.violate(
				"buyer %s was refused at step %d or later, and %s was last sold out at step %d",
				a.buyer,
				a.asked,
				a.shop.ID,
				w.empty[a.shop.ID],
			)
		}
	}
	w.refused = nil
}

// checkSale verifies that the sale is not oversold, and that no buyer holds more than allowed. It adds the orders of
// buyers to held.
func (w *world) checkSale(s shop, held map[sale.OrderID]string) {
	before := len(held)
	loaded, current := true, true
	for _, part := range s.parts() {
		l, c := w.checkPart(s, part, held)
		loaded, current = loaded && l, current && c
	}
	if s.Spread < 2 {
		return
	}
	// A restock counts from the instant at which all segments have applied it.
	if stock := w.units[s.ID].stock; current {
		w.offered[s.ID] = stock
	}
	w.isEmpty[s.ID] = !loaded || int64(len(held)-before) >= w.offered[s.ID]
	w.stayEmpty()
}

// stayEmpty records that the sales without units have none at this step.
func (w *world) stayEmpty() {
	for id, is := range w.isEmpty {
		if is {
			w.empty[id] = w.result.Steps
		}
	}
}

// checkPart is checkSale for one part of a sale. loaded: Redis holds the part. current: the part has applied its
// allocation.
func (w *world) checkPart(s shop, part spread.Part, held map[sale.OrderID]string) (loaded, current bool) {
	shard := w.space.ShardOfSegment(s.ID, part.Segment)
	taken := int64(0)
	for buyer, places := range w.hash(shard.Buyers(s.ID)) {
		n := 0
		slots, _, _ := strings.Cut(places, ";") // then requests of returned orders
		for place := range strings.SplitSeq(slots, ",") {
			if place == "" {
				continue
			}
			order, _, _ := strings.Cut(place, ":") // then its request
			id, err := sale.ParseOrderID(order)
			if err != nil || held[id] != "" {
				w.violate("buyer %s holds %q", buyer, places)
			}
			held[id] = buyer
			n++
		}
		taken += int64(n)
		if n > 0 && spread.Home(buyer, s.Spread) != part.Segment {
			w.violate("buyer %s holds %q in segment %d of %s", buyer, places, part.Segment, s.ID)
		}
		if n > s.PerBuyer {
			w.violate("buyer %s holds %d orders of %s, and may hold %d", buyer, n, s.ID, s.PerBuyer)
		}
	}
	def := w.hash(shard.Sale(s.ID))
	text, err := w.mini.Get(shard.Stock(s.ID))
	if err != nil || def["stock"] == "" {
		return false, false // it is not loaded yet
	}
	left, stock := number(text), number(def["stock"])
	apart, _, _ := strings.Cut(def["out"], " ")
	if left < 0 {
		w.violate("oversold: %d units of %s are left", left, s.ID)
	}
	if left+number(apart)+taken != stock {
		w.violate("segment %d of %s has %d units, but %d are left, %d are in transfer and %d are held", part.Segment, s.ID,
			stock, left, number(apart), taken)
	}
	if part.Spread < 2 {
		return true, true
	}
	if def["version"] == "" || len(w.allocations[s.ID]) <= part.Segment {
		return false, false // a rebuild holds it
	}
	return true, number(def["allocation"]) == w.allocations[s.ID][part.Segment].Version
}

// checkOrders verifies that every order is in the queue, a dead letter or a row, and holds its unit.
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
			w.violate("order %s is a row of %s, whose slots do not contain it", short(id), r.buyer)
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
	shop       shop
	asked      int // the step at which the purchase began
}

// listen records new answers.
func (w *world) listen() {
	w.mu.Lock()
	answers := w.answers
	w.answers = nil
	w.mu.Unlock()
	slices.SortFunc(answers, func(a, b answer) int { return strings.Compare(a.buyer+a.key, b.buyer+b.key) })
	for _, a := range answers {
		if a.d.Outcome == sale.SoldOut && a.shop.Spread > 1 {
			w.refused = append(w.refused, a)
		}
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
