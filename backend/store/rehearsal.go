package store

import (
	"context"
	"fmt"

	"sluice/backend/sale"
)

// removedAtOnce is how many rows one transaction deletes: far less than a statement has time for, and others may write in between.
const removedAtOnce = 1000

// eachIndex together are all orders of a sale; each has an index of its own.
var eachIndex = [...]string{"status <> 'cancelled'", "status = 'cancelled'"}

// RemoveRehearsal deletes a rehearsal and all its orders, and writes in the desk log that there was one. orders is how many this call has deleted. What dies half
// way has deleted some of the orders, and may be repeated until it answers sale.ErrNotFound. A worker that is late with an order finds no sale to write it to.
//
// Payments are kept: should money have come for an order of a rehearsal, it must go back. Errors: sale.ErrNotFound; sale.ErrConflict for a sale that is not closed, or
// is no rehearsal.
func (s *Store) RemoveRehearsal(ctx context.Context, id string) (orders int64, err error) {
	if !sale.IsRehearsal(id) {
		return 0, fmt.Errorf("order: remove rehearsal %s: it is a real sale: %w", id, sale.ErrConflict)
	}
	if err := s.change(ctx, func(ctx context.Context, db conn) error { return closed(ctx, db, id, "") }); err != nil {
		return 0, fmt.Errorf("order: remove rehearsal %s: %w", id, err)
	}
	for _, which := range eachIndex {
		for {
			var n int64
			err := s.change(ctx, func(ctx context.Context, db conn) (err error) {
				n, err = db.exec(ctx, "DELETE FROM orders WHERE id IN (SELECT id FROM orders WHERE sale_id = $1 AND "+which+" LIMIT $2)", id, removedAtOnce)
				return err
			})
			if err != nil {
				return orders, fmt.Errorf("order: remove rehearsal %s: %w", id, err)
			}
			if orders += n; n < removedAtOnce {
				break
			}
		}
	}
	err = s.change(ctx, func(ctx context.Context, db conn) error {
		if err := closed(ctx, db, id, s.engine.dialect().forUpdate); err != nil {
			return err
		}
		for _, which := range eachIndex { // what has come late
			n, err := db.exec(ctx, "DELETE FROM orders WHERE sale_id = $1 AND "+which, id)
			if err != nil {
				return err
			}
			orders += n
		}
		if _, err := db.exec(ctx, "DELETE FROM restocks WHERE sale_id = $1", id); err != nil {
			return err
		}
		if _, err := db.exec(ctx, "DELETE FROM sales WHERE id = $1", id); err != nil {
			return err
		}
		return record(ctx, db, actorOf(ctx), "rehearsal.remove", id, fmt.Sprintf("%d orders", orders))
	})
	if err != nil {
		return orders, fmt.Errorf("order: remove rehearsal %s: %w", id, err)
	}
	return orders, nil
}

// closed is nil when the sale is closed.
func closed(ctx context.Context, db conn, id, lock string) error {
	found, _, err := readSale(ctx, db, id, lock)
	if err == nil && found.Switch != sale.Closed {
		err = fmt.Errorf("it is not closed: %w", sale.ErrConflict)
	}
	return err
}
