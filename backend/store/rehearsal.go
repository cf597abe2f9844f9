package store

import (
	"context"
	"fmt"

	"sluice/backend/sale"
	"sluice/internal/plural"
)

// deleteBatch is how many rows one transaction deletes, so that it stays far below the timeout and does not block other
// writers for long.
const deleteBatch = 1000

// RemoveRehearsal deletes a rehearsal and its orders and logs that it existed. orders is the number of orders that this
// call deleted. After an error or a crash a part of the orders is deleted, and the call can be repeated until it
// returns sale.ErrNotFound. A worker that is late with an order then finds its sale unknown.
//
// Payments are kept: money that was received for an order of a rehearsal must still be refunded. Errors:
// sale.ErrNotFound; sale.ErrConflict for a sale that is not closed or not a rehearsal.
func (s *Store) RemoveRehearsal(ctx context.Context, id string) (orders int64, err error) {
	op := "store: remove rehearsal " + id
	if !sale.IsRehearsal(id) {
		return 0, fmt.Errorf("%s: it is a real sale: %w", op, sale.ErrConflict)
	}
	err = s.View(ctx, op, func(ctx context.Context, c Conn) error { return checkClosed(ctx, c, id, "") })
	if err != nil {
		return 0, err
	}
	var f Filter
	batch := "DELETE FROM orders WHERE id IN (SELECT id FROM orders" + f.first(f.ofSale(id, 0, false), deleteBatch) + ")"
	for n := int64(deleteBatch); n == deleteBatch; orders += n {
		if n, err = UpdateRows(ctx, s.DB, op, batch, f.Args...); err != nil {
			return orders, err
		}
	}
	err = s.Update(ctx, op, func(ctx context.Context, c Conn) error {
		if err := checkClosed(ctx, c, id, c.Dialect().ForUpdate); err != nil {
			return err
		}
		n, err := c.Exec(ctx, "DELETE FROM orders WHERE sale_id = $1", id) // those that were written meanwhile
		if err != nil {
			return err
		}
		orders += n
		if _, err := c.Exec(ctx, "DELETE FROM restocks WHERE sale_id = $1", id); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, "DELETE FROM sales WHERE id = $1", id); err != nil {
			return err
		}
		return logSale(ctx, c, "rehearsal.remove", id, plural.Count(orders, "order"))
	})
	return orders, err
}

// checkClosed returns nil if the sale is closed.
func checkClosed(ctx context.Context, c Conn, id, lock string) error {
	found, err := readSale(ctx, c, id, lock)
	if err == nil && found.Switch != sale.Closed {
		err = fmt.Errorf("it is not closed: %w", sale.ErrConflict)
	}
	return err
}
