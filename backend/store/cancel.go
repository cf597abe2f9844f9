package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/backend/sale"
)

// MaxOverdue is the most orders that one CancelOverdue cancels.
const MaxOverdue = 1000

// byHold is who cancelled an order that was not paid in time.
const byHold = "hold"

// CancelOverdue cancels up to limit orders that have stayed unpaid beyond their sale's hold, the longest overdue first, and takes them off what their sales
// have sold, in one transaction. It returns those that it cancelled. Any number of processes may call it: each cancels other orders, and an
// order that is paid at the same instant is either paid or cancelled. Their units are on their way back from then on; see Returning.
func (s *Store) CancelOverdue(ctx context.Context, limit int) ([]sale.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	cancelled, err := s.cancelOverdue(ctx, min(limit, MaxOverdue))
	if err != nil {
		return nil, fmt.Errorf("order: cancel overdue: %w", err)
	}
	return cancelled, nil
}

func (s *Store) cancelOverdue(ctx context.Context, limit int) (cancelled []sale.Order, err error) {
	d := s.engine.dialect()
	// The column's own test makes the partial index fit.
	overdue := " FROM orders WHERE status = 'created' AND due_at IS NOT NULL AND due_at <= " + d.now
	// Nearly always there is nothing to do, and then nobody is locked: SQLite has one writer.
	err = one(ctx, s.engine.direct(), []any{new(int64)}, "SELECT id"+overdue+" ORDER BY due_at LIMIT 1")
	if errors.Is(err, errNoRow) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	err = s.engine.within(ctx, writing, func(db conn) error {
		cancelled = nil // should a driver run this twice
		err := db.query(ctx, func(r row) error {
			o, err := scanOrder(r)
			cancelled = append(cancelled, o)
			return err
		}, "SELECT "+orderColumns+overdue+" ORDER BY due_at LIMIT $1"+d.skip, limit)
		if err != nil || len(cancelled) == 0 {
			return err
		}
		return s.cancelCreated(ctx, db, cancelled, byHold, "not paid in time")
	})
	if err != nil {
		return nil, err
	}
	if len(cancelled) > 0 {
		s.tell()
	}
	return cancelled, nil
}

// cancelCreated cancels orders that this transaction has locked in the status created. The sales come last and in one order, as in insert: whoever waits
// for them holds nobody else up.
func (s *Store) cancelCreated(ctx context.Context, db conn, orders []sale.Order, by, why string) error {
	ids := make([]sale.OrderID, len(orders))
	units := map[string]int{}
	for i := range orders {
		ids[i] = orders[i].ID
		units[orders[i].SaleID]++
		orders[i].Status = sale.StatusCancelled
	}
	d := s.engine.dialect()
	n, err := db.exec(ctx, "UPDATE orders SET status = 'cancelled', returned = NULL, cancelled_by = $2, note = $3, updated_at = "+d.now+
		" WHERE status = 'created' AND id "+d.among("$1"), numbers(ids), storable(by), storable(why))
	if err != nil {
		return err
	}
	if n != int64(len(ids)) { // they were locked: cannot be
		return unavailable(fmt.Errorf("%d of %d orders could be cancelled", n, len(ids)))
	}
	if err := s.note(ctx, db, kindCancelled, orders...); err != nil {
		return err
	}
	sales := make([]string, 0, len(units))
	for id := range units {
		sales = append(sales, id)
	}
	slices.Sort(sales)
	for _, id := range sales {
		if _, err := db.exec(ctx, "UPDATE sales SET sold = sold - $2 WHERE id = $1", id, units[id]); err != nil {
			return err
		}
	}
	return nil
}

// CancelOrder cancels an order that is a row and not paid, takes it off what its sale has sold, and writes who did it and why in the desk log. It
// returns the row; changed is false when it was cancelled before. Errors: sale.ErrNotFound when it is no row; sale.ErrConflict when it is paid.
func (s *Store) CancelOrder(ctx context.Context, id sale.OrderID, actor, reason string) (o sale.Order, changed bool, err error) {
	err = s.change(ctx, func(ctx context.Context, db conn) error {
		changed = false
		if o, err = readOrder(ctx, db, id, s.engine.dialect().forUpdate); err != nil {
			return err
		}
		switch o.Status {
		case sale.StatusCancelled:
			return nil
		case sale.StatusPaid:
			return fmt.Errorf("it is paid: %w", sale.ErrConflict)
		}
		changed = true
		locked := []sale.Order{o}
		if err := s.cancelCreated(ctx, db, locked, actor, reason); err != nil {
			return err
		}
		o = locked[0]
		return record(ctx, db, actor, CancelledOrder, id.String(), "sale "+o.SaleID+": "+reason)
	})
	if err != nil {
		return sale.Order{}, false, fmt.Errorf("order: cancel order %s: %w", id, err)
	}
	if changed {
		s.tell()
	}
	return o, changed, nil
}

// readOrder reads one row, or returns sale.ErrNotFound.
func readOrder(ctx context.Context, db conn, id sale.OrderID, lock string) (o sale.Order, err error) {
	err = sale.ErrNotFound
	if qerr := db.query(ctx, func(r row) error {
		o, err = scanOrder(r)
		return err
	}, "SELECT "+orderColumns+" FROM orders WHERE id = $1"+lock, int64(id)); qerr != nil {
		return sale.Order{}, qerr
	}
	return o, err
}
