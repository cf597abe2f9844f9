package sim

import (
	"time"

	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
)

// checkRows checks the invariants of SQL that hold in every state of Redis.
func (w *world) checkRows() {
	rows, err := w.books.rows()
	all, uerr := w.books.units()
	if err != nil || uerr != nil {
		w.violate("the observer cannot read SQL: %v, %v", err, uerr)
		return
	}
	count, of := map[string]int64{}, map[[2]string]int{}
	for id, r := range rows {
		if !r.cancelled() {
			count[r.saleID]++
			of[[2]string{r.saleID, r.buyer}]++
		}
		if was, known := w.rows[id]; known &&
			(was.buyer != r.buyer || was.saleID != r.saleID || was.status != "created" && was.status != r.status) {
			w.violate("row %s has changed from %+v to %+v", short(id), was, r)
		}
	}
	for id := range w.rows {
		if _, still := rows[id]; !still {
			w.violate("row %s is missing", short(id))
		}
	}
	allocations, err := w.books.allocations()
	if err != nil {
		w.violate("the observer cannot read the allocations: %v", err)
		return
	}
	for _, s := range w.Shops {
		w.checkStock(s, all[s.ID], count[s.ID], allocations[s.ID])
	}
	for key, n := range of {
		if most := w.shop(key[0]).PerBuyer; n > most {
			w.violate("SQL has %d orders of %s in %s, with a limit of %d", n, key[1], key[0], most)
		}
	}
	w.checkPayments(rows)
	w.mu.Lock()
	w.rows, w.units, w.allocations = rows, all, allocations
	w.mu.Unlock()
}

// checkStock verifies that the allocations of a sale add up to its stock, and that its rows are those that SQL counts.
func (w *world) checkStock(s shop, u units, rows int64, allocations []spread.Allocation) {
	if s.Spread > 1 && u.stock > 0 {
		sum := int64(0)
		for _, a := range allocations {
			sum += a.Units
		}
		if sum != u.stock || len(allocations) != s.Spread {
			w.violate("the stock of %s is %d, and its allocations are %+v", s.ID, u.stock, allocations)
		}
	}
	if rows > u.stock || rows != u.sold {
		w.violate("SQL has %d units of %s, counts %d as sold, and has %d orders", u.stock, s.ID, u.sold, rows)
	}
}

// checkPayments verifies that an order is paid by one payment, and that the money of every other payment is refunded
// once.
func (w *world) checkPayments(rows map[sale.OrderID]row) {
	all, err := w.books.callbacks()
	if err != nil {
		w.violate("the observer cannot read the payments: %v", err)
		return
	}
	type money struct {
		order     sale.OrderID
		reference string
	}
	paidBy, kept, back := map[sale.OrderID]string{}, map[money]bool{}, map[money]int{}
	for _, c := range all {
		m := money{c.order, c.reference}
		if c.refund {
			back[m]++
		}
		switch by, paid := paidBy[c.order]; {
		case c.settled == store.SettledPaid && paid && by != c.reference:
			w.violate("order %s was paid by %s and by %s", short(c.order), by, c.reference)
		case c.settled == store.SettledPaid:
			paidBy[c.order], kept[m] = c.reference, true
		}
	}
	for _, c := range all {
		m, want := money{c.order, c.reference}, 1
		if kept[m] { // by this callback or another one
			want = 0
		}
		if c.event == store.EventSucceeded && back[m] != want {
			w.violate("payment %s of order %s was %s, and is refunded %d times", c.reference, short(c.order), c.settled, back[m])
		}
	}
	for id, r := range rows {
		if _, paid := paidBy[id]; paid != (r.status == "paid") {
			w.violate("order %s is %s, and paid: %v", short(id), r.status, paid)
		}
	}
}

// overdue reports whether an order's hold has expired.
func (w *world) overdue() bool {
	for _, r := range w.rows {
		if r.status == "created" && r.due != 0 && r.due <= time.Now().UnixMilli() {
			return true
		}
	}
	return false
}
