package store

import (
	"context"
	"errors"
	"fmt"

	"sluice/backend/sale"
)

// Event is what a callback tells of a payment.
type Event string

// The events of a payment.
const (
	EventSucceeded Event = "succeeded"
	EventFailed    Event = "failed"
)

// Payment is a callback of the payment provider about one order.
type Payment struct {
	CallbackID string // names the callback: the same again is answered the same
	Digest     string // of its text: the same id with another text is another callback
	OrderID    sale.OrderID
	Event      Event
	Price      sale.Price // of a payment that failed it may be zero
	Reference  string     // the provider's own name of the payment; of one that failed it may be empty
}

// Settlement is what became of a callback.
type Settlement string

// The settlements. Of the last three, money has come that no order took: a person gives it back.
const (
	SettledPaid      Settlement = "paid"            // the order is paid, by this payment
	SettledFailed    Settlement = "failed"          // noted; the order waits for another payment until its hold ends
	SettledCancelled Settlement = "order_cancelled" // the order was cancelled before
	SettledMismatch  Settlement = "mismatch"        // not the price of the sale
	SettledTwice     Settlement = "paid_already"    // another payment has paid the order
)

// owes tells whether money has come that must go back.
func (s Settlement) owes() bool {
	return s == SettledCancelled || s == SettledMismatch || s == SettledTwice
}

// ErrCallbackReused says that a callback's id came with another text before.
var ErrCallbackReused = errors.New("the callback's id came with another text before")

// errRaced says that the same callback was settled elsewhere in the same instant.
var errRaced = errors.New("the callback was settled meanwhile")

// Pay settles a callback for good and in one transaction: an order that is a row and not paid becomes paid, if the price is right, and whatever comes of it is
// written down. The same callback again changes nothing and gets the same settlement, with replayed true. A payment and a
// cancel that come at once have one winner. Errors: sale.ErrNotFound when the order is no row, and nothing is written down; ErrCallbackReused.
func (s *Store) Pay(ctx context.Context, p Payment) (settled Settlement, replayed bool, err error) {
	const tries = 3
	for range tries {
		err = s.change(ctx, func(ctx context.Context, db conn) error {
			settled, replayed, err = s.settle(ctx, db, p)
			return err
		})
		if !errors.Is(err, errRaced) {
			break
		}
	}
	if errors.Is(err, errRaced) {
		err = unavailable(err)
	}
	if err != nil {
		return "", false, fmt.Errorf("order: pay order %s: %w", p.OrderID, err)
	}
	if settled == SettledPaid && !replayed {
		s.tell()
	}
	return settled, replayed, nil
}

func (s *Store) settle(ctx context.Context, db conn, p Payment) (settled Settlement, replayed bool, err error) {
	var digest string
	err = one(ctx, db, []any{&settled, &digest}, "SELECT outcome, digest FROM payments WHERE callback_id = $1", p.CallbackID)
	switch {
	case err == nil && digest != p.Digest:
		return "", false, ErrCallbackReused
	case err == nil:
		return settled, true, nil
	case !errors.Is(err, errNoRow):
		return "", false, err
	}
	o, err := readOrder(ctx, db, p.OrderID, s.engine.dialect().forUpdate)
	if err != nil {
		return "", false, err
	}
	if settled, err = s.judge(ctx, db, p, o); err != nil {
		return "", false, err
	}
	if settled == SettledPaid && o.Status == sale.StatusCreated {
		n, err := db.exec(ctx, "UPDATE orders SET status = 'paid', reference = $2, updated_at = "+s.engine.dialect().now+
			" WHERE id = $1 AND status = 'created'", int64(o.ID), p.Reference)
		if err != nil {
			return "", false, err
		}
		if n != 1 { // it was locked: cannot be
			return "", false, errRaced
		}
		if err := s.note(ctx, db, kindPaid, o); err != nil {
			return "", false, err
		}
	}
	return settled, false, s.keep(ctx, db, p, o, settled)
}

// judge decides what becomes of a callback, with the order locked.
func (s *Store) judge(ctx context.Context, db conn, p Payment, o sale.Order) (Settlement, error) {
	if p.Event == EventFailed {
		return SettledFailed, nil
	}
	if o.Status == sale.StatusCancelled {
		return SettledCancelled, nil
	}
	var price sale.Price
	if err := one(ctx, db, []any{&price.Amount, &price.Currency}, "SELECT price_amount, currency FROM sales WHERE id = $1", o.SaleID); err != nil {
		return "", err
	}
	if price != p.Price {
		return SettledMismatch, nil
	}
	if o.Status == sale.StatusPaid {
		var paidBy string
		if err := one(ctx, db, []any{&paidBy}, "SELECT coalesce(reference, '') FROM orders WHERE id = $1", int64(o.ID)); err != nil {
			return "", err
		}
		if paidBy != p.Reference {
			return SettledTwice, nil
		}
	}
	return SettledPaid, nil
}

// keep writes a settled callback down. Money that must go back is asked for once, however many callbacks tell of the same payment.
func (s *Store) keep(ctx context.Context, db conn, p Payment, o sale.Order, settled Settlement) error {
	refund := 0
	if settled.owes() {
		err := one(ctx, db, []any{new(int64)}, "SELECT id FROM payments WHERE order_id = $1 AND reference = $2 AND refund = 1 LIMIT 1", int64(o.ID), p.Reference)
		switch {
		case errors.Is(err, errNoRow):
			refund = 1
		case err != nil:
			return err
		}
	}
	n, err := db.exec(ctx, `INSERT INTO payments (callback_id, digest, order_id, sale_id, event, amount, currency, reference, outcome, refund)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (callback_id) DO NOTHING`,
		p.CallbackID, p.Digest, int64(o.ID), o.SaleID, string(p.Event), p.Price.Amount, p.Price.Currency, p.Reference, string(settled), refund)
	if err == nil && n == 0 {
		return errRaced
	}
	return err
}
