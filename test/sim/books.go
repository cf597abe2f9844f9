package sim

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"

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
