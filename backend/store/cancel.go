package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sluice/backend/sale"
)

// maxOverdue is the maximum number of orders that one CancelOverdue cancels.
const maxOverdue = 1000

// CancelOverdue cancels up to limit orders whose hold has ended, longest overdue first, subtracts them from the sold
// units of their sales, and returns them. Concurrent calls cancel different orders, and an order that is paid at the
// same time is either paid or cancelled.
func (s *Store) CancelOverdue(ctx context.Context, limit int) (cancelled []sale.Order, err error) {
	overdue := func(c Conn) string { // the condition on due_at makes the planner use the partial index
		return " FROM orders WHERE status = 'created' AND due_at IS NOT NULL AND due_at <= " + c.Dialect().Now
	}
	_, err = s.UpdateIf(ctx, "store: cancel overdue", func(ctx context.Context, c Conn) (bool, error) {
		return Exists(ctx, c, "SELECT id"+overdue(c)+" ORDER BY due_at LIMIT 1")
	}, func(ctx context.Context, c Conn) error {
		cancelled, err = Select(ctx, c, scanOrder, "SELECT "+orderColumns+overdue(c)+" ORDER BY due_at LIMIT $1"+
			c.Dialect().SkipLocked, min(limit, maxOverdue))
		if err != nil || len(cancelled) == 0 {
			return err
		}
		return cancelCreated(WithReason(WithActor(ctx, ActorHold), "not paid in time"), c, cancelled)
	})
	if err != nil {
		return nil, err
	}
	for i := range cancelled {
		cancelled[i].Status, cancelled[i].Expired = sale.StatusCancelled, true
	}
	return cancelled, nil
}

// cancelCreated cancels the rows of orders with the status created that this transaction has locked. The rows get the
// actor and the reason of the context. The sales are locked last and in the order of their ids, as in insert, so that
// transactions cannot deadlock.
func cancelCreated(ctx context.Context, c Conn, orders []sale.Order) error {
	ids := idsOf(orders)
	units := map[string]int{}
	for _, o := range orders {
		units[o.SaleID]++
	}
	d := c.Dialect()
	n, err := c.Exec(ctx,
		"UPDATE orders SET status = 'cancelled', return_number = NULL, cancelled_by = $2, cancel_reason = $3, "+
			"updated_at = "+d.Now+" WHERE status = 'created' AND id "+d.In("$1"),
		int64s(ids), Text(Actor(ctx)), Text(Reason(ctx)))
	if err != nil {
		return err
	}
	if n != int64(len(ids)) { // impossible, as the rows are locked
		return unavailable(fmt.Errorf("%d of %d orders could be cancelled", n, len(ids)))
	}
	if err := appendOutbox(ctx, c, OutboxCancelled, orders...); err != nil {
		return err
	}
	// If the column sold of one sale is too low, for example after a change by hand, the orders of the other sales must be
	// cancelled nevertheless.
	const subtract = "UPDATE sales SET sold = CASE WHEN sold < $2 THEN 0 ELSE sold - $2 END WHERE id = $1"
	for _, id := range slices.Sorted(maps.Keys(units)) {
		if _, err := c.Exec(ctx, subtract, id, units[id]); err != nil {
			return err
		}
	}
	return nil
}

// isArchived reports whether a sale is archived, and blocks BeginPart until the transaction ends. It locks the sale, so
// a transaction must lock its orders before the call; see insertNew.
func isArchived(ctx context.Context, c Conn, saleID string) (bool, error) {
	var archived int
	err := Get(ctx, c, []any{&archived}, "SELECT archived FROM sales WHERE id = $1"+c.Dialect().ForShare, saleID)
	if errors.Is(err, sale.ErrNotFound) {
		err = nil
	}
	return archived == 1, err
}

// The actions of the action log about dead orders. After CancelledOrder the order has a row with the status cancelled.
// After DroppedDead it has no row, because none can be inserted for it.
const (
	CancelledOrder = "order.cancel"
	DroppedDead    = "dead.drop"
	RetriedDead    = "dead.retry"
)

// CancelOrder cancels an unpaid order, subtracts it from the sold units of its sale, and logs that. The row and the log
// entry get the actor and the reason of the context. It returns the row; changed is false if the order was cancelled
// before. Errors: sale.ErrNotFound if it is not a row; a *RefusedError if it is paid or its sale is archived.
func (s *Store) CancelOrder(ctx context.Context, id sale.OrderID) (o sale.Order, changed bool, err error) {
	err = s.Update(ctx, "store: cancel order "+id.String(), func(ctx context.Context, c Conn) error {
		row, err := readRow(ctx, c, id, c.Dialect().ForUpdate)
		if err != nil {
			return err
		}
		o = row.Order
		switch o.Status {
		case sale.StatusCancelled:
			return nil
		case sale.StatusPaid:
			return Refused("The order is paid and cannot be cancelled here. Refund it at the payment provider; to sell its " +
				"unit again, restock the sale.")
		}
		if err := cancelCreated(ctx, c, []sale.Order{o}); err != nil {
			return err
		}
		o.Status, changed = sale.StatusCancelled, true
		archived, err := isArchived(ctx, c, o.SaleID)
		if err == nil && archived { // Redis does not hold the sale, so it cannot take the unit back
			err = Refused("The sale %s of the order is archived, so the order cannot be cancelled any more.", o.SaleID)
		}
		if err != nil {
			return err
		}
		return logOrder(ctx, c, CancelledOrder, o, "sale "+o.SaleID)
	})
	if err != nil {
		return sale.Order{}, false, err
	}
	return o, changed, nil
}

// DeadOrder is an order that failed permanently in the queue.
type DeadOrder struct {
	sale.Order
	Unbacked bool // it holds no unit, so its dead letter has none to return
}

// logDetail is the detail of a log entry about the order.
func (o DeadOrder) logDetail() string {
	if o.Unbacked {
		return noUnit + "sale " + o.SaleID
	}
	return "sale " + o.SaleID
}

// CancelDead cancels an order that died in the queue. It inserts a row with the status cancelled, so that a late Write
// of the order has no effect, and logs that as CancelOrder does. The sold units of the sale do not change. The call is
// idempotent.
//
// wasRow reports that the order was a row before. The row is not changed then, and the unit of the dead letter must not
// be returned: the row holds the unit or, if the row was cancelled since, the cancellation returns it.
//
// Errors: ErrRejected if there can be no such row, because the id belongs to another order, a value does not fit, or
// the sale is archived; see DropDead. ErrStale if the context's generation (WithGeneration) is not current: after a
// rebuild of Redis the order may become a row again, and its unit would never be returned.
func (s *Store) CancelDead(ctx context.Context, o DeadOrder) (wasRow bool, err error) {
	op := "store: cancel order " + o.ID.String()
	if err := validate(o.Order); err != nil {
		return false, fmt.Errorf("%s: %w", op, err)
	}
	err = s.Update(ctx, op, func(ctx context.Context, c Conn) error {
		if err := checkGeneration(ctx, c); err != nil {
			return err
		}
		inserted, err := insertCancelled(ctx, c, o)
		if err != nil {
			return err
		}
		if !inserted {
			wasRow, err = logDeadRow(ctx, c, o)
			return err
		}
		if err := appendOutbox(ctx, c, OutboxCancelled, o.Order); err != nil {
			return err
		}
		if err := logOrder(ctx, c, CancelledOrder, o.Order, o.logDetail()); err != nil {
			return err
		}
		archived, err := isArchived(ctx, c, o.SaleID) // last, because other transactions wait for the sale
		if err == nil && archived {                   // a file may contain the order, for example as paid
			err = rejected("", "its sale is archived")
		}
		return err
	})
	return wasRow && err == nil, err
}

// insertCancelled inserts the row of a dead order with the status cancelled, and reports whether there was none.
func insertCancelled(ctx context.Context, c Conn, o DeadOrder) (inserted bool, err error) {
	returnNumber := diedInQueue
	if o.Unbacked {
		returnNumber = heldNoUnit
	}
	n, err := c.Exec(ctx, `INSERT INTO orders
		(id, sale_id, buyer, slot, serial, status, cancelled_by, cancel_reason, return_number, updated_at)
		VALUES ($1, $2, $3, $4, $5, 'cancelled', $6, $7, $8, `+c.Dialect().Now+") ON CONFLICT (id) DO NOTHING",
		int64(o.ID), o.SaleID, o.Buyer, o.Slot, o.Serial, Text(Actor(ctx)), Text(Reason(ctx)), returnNumber)
	return n > 0, err
}

// logDeadRow is CancelDead for an order that is a row already. It logs that the row is kept, unless it is cancelled.
// wasRow is false if an earlier CancelDead inserted the row for an order with a unit. The error wraps ErrRejected if
// the row belongs to another order.
func logDeadRow(ctx context.Context, c Conn, o DeadOrder) (wasRow bool, err error) {
	row, err := readRow(ctx, c, o.ID, "")
	switch {
	case err != nil:
		return false, err
	case row.SaleID != o.SaleID || row.Buyer != o.Buyer: // the slot may differ: a rebuild can change it
		return false, rejected("", "its id is another order's")
	case row.Status == sale.StatusCancelled:
		return !row.Died, nil
	}
	return true, logOrder(ctx, c, CancelledOrder, o.Order, "it is a row and stays; "+o.logDetail())
}

// DropDead logs that an order which died in the queue is abandoned because CancelDead returned rejection for it and it
// can have no row. Each call appends an entry. Error: ErrStale, as in CancelDead.
func (s *Store) DropDead(ctx context.Context, o DeadOrder, rejection error) error {
	detail := o.logDetail() + ": " + Reason(ctx) + " (there can be no row: " + rejection.Error() + ")"
	return s.Update(ctx, "store: drop order "+o.ID.String(), func(ctx context.Context, c Conn) error {
		if err := checkGeneration(ctx, c); err != nil {
			return err
		}
		return logOrder(WithReason(ctx, ""), c, DroppedDead, o.Order, detail) // the detail has the reason
	})
}

// LogRetry logs that a dead order is put back on the queue. failure is the error of its last attempt.
func (s *Store) LogRetry(ctx context.Context, o sale.Order, failure string) error {
	return s.Update(ctx, "store: log the retry of order "+o.ID.String(), func(ctx context.Context, c Conn) error {
		return logOrder(ctx, c, RetriedDead, o, "sale "+o.SaleID+": "+failure)
	})
}
