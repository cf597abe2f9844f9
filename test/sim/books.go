package sim

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"time"

	_ "modernc.org/sqlite" // the driver of the observer's own connection

	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
)

// row is an order in SQL.
type row struct {
	buyer, saleID, status string
	due                   int64 // ms; 0: never
	// it is a cancelled dead letter: while the letter exists, it has the unit
	died bool
}

func (r row) cancelled() bool { return r.status == "cancelled" }

// callback is a settled callback of the payment provider.
type callback struct {
	order     sale.OrderID
	event     store.Event
	reference string
	settled   store.Settlement
	refund    bool
}

// units are the counts of a sale in SQL.
type units struct{ stock, sold, version int64 }

// books reads SQL with its own statements, independently of the order store.
type books struct{ db *sql.DB }

func openBooks(path string) (*books, error) {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	return &books{db}, nil
}

// empty resets the database for a new run.
func (b *books) empty() error {
	for _, statement := range []string{
		"DELETE FROM orders", "DELETE FROM restocks", "DELETE FROM admin_log", "DELETE FROM payments", "DELETE FROM segments",
		"DELETE FROM sales",
		"DELETE FROM journals", "UPDATE counters SET n = 0",
	} {
		if _, err := b.db.ExecContext(context.Background(), statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

func (b *books) each(query string, scan func(*sql.Rows) error) error {
	found, err := b.db.QueryContext(context.Background(), query)
	if err != nil {
		return err
	}
	defer found.Close()
	for found.Next() {
		if err := scan(found); err != nil {
			return err
		}
	}
	return found.Err()
}

func (b *books) rows() (map[sale.OrderID]row, error) {
	rows := map[sale.OrderID]row{}
	return rows, b.each(
		"SELECT id, buyer, sale_id, status, coalesce(due_at, 0), status = 'cancelled' AND coalesce(return_number, 0) = -1 "+
			"FROM orders",
		func(found *sql.Rows) error {
			var id int64
			var r row
			err := found.Scan(&id, &r.buyer, &r.saleID, &r.status, &r.due, &r.died)
			rows[sale.OrderID(id)] = r
			return err
		},
	)
}

func (b *books) units() (map[string]units, error) {
	all := map[string]units{}
	return all, b.each("SELECT id, stock, sold, version FROM sales", func(found *sql.Rows) error {
		var id string
		var u units
		err := found.Scan(&id, &u.stock, &u.sold, &u.version)
		all[id] = u
		return err
	})
}

// allocations returns the allocations of all sales with several segments, by sale and segment.
func (b *books) allocations() (map[string][]spread.Allocation, error) {
	all := map[string][]spread.Allocation{}
	return all, b.each(
		"SELECT sale_id, units, version FROM segments ORDER BY sale_id, segment",
		func(found *sql.Rows) error {
			var id string
			var a spread.Allocation
			err := found.Scan(&id, &a.Units, &a.Version)
			all[id] = append(all[id], a)
			return err
		},
	)
}

func (b *books) callbacks() (all []callback, err error) {
	err = b.each(
		"SELECT order_id, event, reference, outcome, refund FROM payments ORDER BY id",
		func(found *sql.Rows) error {
			var c callback
			err := found.Scan(&c.order, &c.event, &c.reference, &c.settled, &c.refund)
			all = append(all, c)
			return err
		},
	)
	return all, err
}

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
		if a := allocations[s.ID]; s.Spread > 1 && all[s.ID].stock > 0 {
			sum := int64(0)
			for _, one := range a {
				sum += one.Units
			}
			if sum != all[s.ID].stock || len(a) != s.Spread {
				w.violate("the stock of %s is %d, and its allocations are %+v", s.ID, all[s.ID].stock, a)
			}
		}
		if u := all[s.ID]; count[s.ID] > u.stock || count[s.ID] != u.sold {
			w.violate("SQL has %d units of %s, counts %d as sold, and has %d orders", u.stock, s.ID, u.sold, count[s.ID])
		}
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

func (w *world) shop(id string) shop {
	for _, s := range w.Shops {
		if s.ID == id {
			return s
		}
	}
	return shop{}
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
