package store

import (
	"context"
	"errors"
	"fmt"
	"math"

	"sluice/backend/sale"
)

const orderColumns = "id, sale_id, buyer, nth, serial, status, due_at"

func scanOrder(r row) (sale.Order, error) {
	var o sale.Order
	var id int64
	var due instant
	if err := r.Scan(&id, &o.SaleID, &o.Buyer, &o.Nth, &o.Serial, &o.Status, &due); err != nil {
		return sale.Order{}, err
	}
	o.ID, o.DueAt = sale.OrderID(id), due.Time
	return o, nil
}

// Order returns one order, or sale.ErrNotFound when it is not a row.
func (s *Store) Order(ctx context.Context, id sale.OrderID) (sale.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	rows, err := s.orders(ctx, []sale.OrderID{id})
	if err != nil {
		return sale.Order{}, fmt.Errorf("order: read order %s: %w", id, err)
	}
	o, ok := rows[id]
	if !ok {
		return sale.Order{}, fmt.Errorf("order: order %s: %w", id, sale.ErrNotFound)
	}
	return o, nil
}

// Statuses returns the status of those orders that are rows.
func (s *Store) Statuses(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	rows, err := s.orders(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("order: read statuses: %w", err)
	}
	statuses := make(map[sale.OrderID]sale.Status, len(rows))
	for id, o := range rows {
		statuses[id] = o.Status
	}
	return statuses, nil
}

func (s *Store) orders(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Order, error) {
	found := make(map[sale.OrderID]sale.Order, len(ids))
	err := s.engine.direct().query(ctx, func(r row) error {
		o, err := scanOrder(r)
		found[o.ID] = o
		return err
	}, "SELECT "+orderColumns+" FROM orders WHERE id "+s.engine.dialect().among("$1"), numbers(ids))
	return found, err
}

func numbers(ids []sale.OrderID) []int64 {
	out := make([]int64, len(ids))
	for i, id := range ids {
		out[i] = int64(id)
	}
	return out
}

// page is how many orders OrdersOf reads at a time.
const page = 5000

// OrdersOf calls yield for every order of a sale that holds a unit, by serial, and then for each cancelled one whose unit is on its way back: those come
// with the status cancelled, and hold none any more; an order that is cancelled meanwhile may come twice. It reads in pages, so a sale of millions needs little memory and no
// transaction stays open; each page has the store's timeout, and orders that are written meanwhile may be seen or not. An error of yield ends it and
// is returned as it is. An unknown sale has no orders.
func (s *Store) OrdersOf(ctx context.Context, saleID string, yield func(sale.Order) error) error {
	var last sale.Order
	for {
		orders, err := s.ordersAfter(ctx, saleID, last)
		if err != nil {
			return fmt.Errorf("order: read orders of sale %s: %w", saleID, err)
		}
		for _, o := range orders {
			if err := yield(o); err != nil {
				return err
			}
		}
		if len(orders) < page {
			return s.returningOf(ctx, saleID, yield) // after the others: none is missed that is cancelled meanwhile
		}
		last = orders[len(orders)-1]
	}
}

func (s *Store) ordersAfter(ctx context.Context, saleID string, last sale.Order) ([]sale.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var orders []sale.Order
	err := s.engine.direct().query(ctx, func(r row) error {
		o, err := scanOrder(r)
		orders = append(orders, o)
		return err
	}, "SELECT "+orderColumns+` FROM orders WHERE sale_id = $1 AND status <> 'cancelled' AND serial >= $2 AND (serial, id) > ($2, $3)
		ORDER BY serial, id LIMIT $4`, saleID, last.Serial, int64(last.ID), page)
	return orders, err
}

// Instant is how far Redis had come with a sale when it was counted there.
type Instant struct {
	Accepted int64          // orders accepted
	Returned int64          // the number of the last unit that it took back
	Given    []sale.OrderID // orders whose unit it has taken back, and whose rows may not know yet
}

// Always is the instant after all others.
var Always = Instant{Accepted: math.MaxInt64, Returned: math.MaxInt64}

// Count is what the audit of a sale needs from SQL, all of one instant.
type Count struct {
	Stock     int64          // units in all
	Sold      int64          // orders counted in the sale; equal to the rows of any serial that are not cancelled
	Rows      int64          // orders accepted up to the instant asked for, cancelled ones left out
	Returning int64          // cancelled ones among these whose unit was not back in Redis at that instant
	Last      int64          // the highest serial of any order that is not cancelled; 0 when there is none
	Among     []sale.OrderID // which of the orders asked for are rows, and no dead ones that were cancelled; in no order
}

// Count counts the rows of a sale as of an instant of Redis that has passed. It returns sale.ErrNotFound for an unknown sale.
func (s *Store) Count(ctx context.Context, saleID string, at Instant, among []sale.OrderID) (Count, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var c Count
	err := s.engine.within(ctx, snapshot, func(db conn) error {
		if err := one(ctx, db, []any{&c.Stock, &c.Sold}, "SELECT stock, sold FROM sales WHERE id = $1", saleID); err != nil {
			return err
		}
		const rows = "SELECT count(*) FROM orders WHERE sale_id = $1 AND serial <= $2 AND status <> 'cancelled'"
		if err := one(ctx, db, []any{&c.Rows}, rows, saleID, at.Accepted); err != nil {
			return err
		}
		in := s.engine.dialect().among
		returning := `SELECT count(*) FROM orders WHERE sale_id = $1 AND status = 'cancelled' AND serial <= $2
			AND (returned > $3 OR returned IS NULL AND NOT id ` + in("$4") + ")"
		if err := one(ctx, db, []any{&c.Returning}, returning, saleID, at.Accepted, at.Returned, numbers(at.Given)); err != nil {
			return err
		}
		const last = "SELECT coalesce(max(serial), 0) FROM orders WHERE sale_id = $1 AND status <> 'cancelled'"
		if err := one(ctx, db, []any{&c.Last}, last, saleID); err != nil || len(among) == 0 {
			return err
		}
		return db.query(ctx, func(r row) error {
			var id int64
			err := r.Scan(&id)
			c.Among = append(c.Among, sale.OrderID(id))
			return err
		}, "SELECT id FROM orders WHERE sale_id = $1 AND (status <> 'cancelled' OR returned IS NULL OR returned >= 0) AND id "+in("$2"), saleID, numbers(among))
	})
	if errors.Is(err, errNoRow) {
		err = sale.ErrNotFound
	}
	if err != nil {
		return Count{}, fmt.Errorf("order: count sale %s: %w", saleID, err)
	}
	return c, nil
}
