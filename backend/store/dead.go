package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"sluice/backend/sale"
)

// Dead is an order that died in the queue.
type Dead struct {
	sale.Order
	Unbacked bool // it holds no unit, so its dead letter has none to give back
}

// CancelDead settles that an order which died in the queue will never be sold: it becomes a row with the status cancelled, which holds no unit, and a
// late Write of it does nothing. Actor and reason are kept with the row and in the desk log. It may be repeated.
//
// ErrRejected says that there can be no such row, because the id is another order's or a value does not fit; nothing was written. See DropDead.
//
// wasRow tells that the order had become a row after all: nothing is changed, and nothing may be given back with the dead letter. The row keeps its unit or,
// cancelled since, gives it back itself.
//
// With a context of AtGeneration it returns ErrStale, and does nothing, when Redis was rebuilt since the letter was read there: the order may be on its way to
// become a row again, and nobody would give back what it holds then.
func (s *Store) CancelDead(ctx context.Context, o Dead, actor, reason string) (wasRow bool, err error) {
	if err := valid(o.Order); err != nil {
		return false, fmt.Errorf("order: cancel: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err = s.engine.within(ctx, writing, func(db conn) error {
		if err := s.present(ctx, db); err != nil {
			return err
		}
		detail, returned := "sale "+o.SaleID+": "+reason, -1
		if o.Unbacked {
			detail, returned = noUnit+detail, 0
		}
		n, err := db.exec(ctx, `INSERT INTO orders (id, sale_id, buyer, nth, serial, status, cancelled_by, note, returned, updated_at)
			VALUES ($1, $2, $3, $4, $5, 'cancelled', $6, $7, $8, `+s.engine.dialect().now+`) ON CONFLICT (id) DO NOTHING`,
			int64(o.ID), o.SaleID, o.Buyer, o.Nth, o.Serial, storable(actor), storable(reason), returned)
		if err != nil {
			return err
		}
		if n == 1 {
			if err := s.note(ctx, db, kindCancelled, o.Order); err != nil {
				return err
			}
		} else {
			found, err := readOrder(ctx, db, o.ID, "")
			if err != nil {
				return err
			}
			var diedInQueue bool
			const died = "SELECT coalesce(returned, 0) = -1 FROM orders WHERE id = $1"
			if err := one(ctx, db, []any{&diedInQueue}, died, int64(o.ID)); err != nil {
				return err
			}
			switch {
			case !same(found, o.Order):
				return rejected("", "its id is another order's")
			case found.Status == sale.StatusCancelled && diedInQueue:
				return nil
			case found.Status == sale.StatusCancelled:
				wasRow = true
				return nil
			default:
				wasRow = true
				detail = "it is a row and stays; " + detail
			}
		}
		return record(ctx, db, actor, CancelledOrder, o.ID.String(), detail)
	})
	if err != nil {
		return false, fmt.Errorf("order: cancel order %s: %w", o.ID, err)
	}
	s.tell()
	return wasRow, nil
}

// What the desk log says was done with an order: it was cancelled, and a row tells, or it was dropped, and there can be no row.
const (
	CancelledOrder = "order.cancel"
	DroppedDead    = "dead.drop"
)

// DropDead writes down in the desk log that an order which died in the queue is given up, by whom and why, where CancelDead refuses it: there can be no row that
// tells. because is why. It may be repeated, and writes a line each time. With a context of AtGeneration it returns ErrStale as CancelDead does.
func (s *Store) DropDead(ctx context.Context, o Dead, actor, reason string, because error) error {
	detail := "sale " + o.SaleID + ": " + reason + " (there can be no row: " + because.Error() + ")"
	if o.Unbacked {
		detail = noUnit + detail
	}
	write := func(actor, detail string) error {
		return s.change(ctx, func(ctx context.Context, db conn) error {
			if err := s.present(ctx, db); err != nil {
				return err
			}
			return record(ctx, db, actor, DroppedDead, o.ID.String(), detail)
		})
	}
	err := write(actor, detail)
	if errors.Is(err, ErrRejected) { // a database that is not UTF-8 has no room for every letter
		err = write(ascii(actor), ascii(detail))
	}
	if err != nil {
		return fmt.Errorf("order: drop order %s: %w", o.ID, err)
	}
	return nil
}

// ascii writes every other letter as Go escapes it.
func ascii(text string) string {
	quoted := strconv.QuoteToASCII(text)
	return quoted[1 : len(quoted)-1]
}
