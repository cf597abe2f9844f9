package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/backend/sale"
)

// Event is the type of a payment callback.
type Event string

// The types of payment callbacks.
const (
	EventSucceeded Event = "succeeded"
	EventFailed    Event = "failed"
)

// Payment is a callback of the payment provider about one order.
type Payment struct {
	CallbackID string       `json:"callback_id"` // identifies the callback; a repeated callback has the same outcome
	Digest     string       `json:"digest"`      // of the body; the same id with another body is an error
	OrderID    sale.OrderID `json:"order_id,string"`
	Event      Event        `json:"event"`
	sale.Price              // may be zero for a failed payment
	Reference  string       `json:"reference,omitempty"` // the provider's id of the payment; may be empty for a failed one
}

// Settlement is the outcome of a callback.
type Settlement string

// The settlements. After the last three, money was received that paid no order, and an admin has to refund it.
const (
	SettledPaid      Settlement = "paid"            // this payment paid the order
	SettledFailed    Settlement = "failed"          // recorded; another payment may pay the order until its hold ends
	SettledCancelled Settlement = "order_cancelled" // the order was cancelled before
	SettledMismatch  Settlement = "mismatch"        // the amount is not the price of the sale
	SettledTwice     Settlement = "paid_already"    // another payment has paid the order
)

// needsRefund reports whether money was received that paid no order.
func (s Settlement) needsRefund() bool {
	return s == SettledCancelled || s == SettledMismatch || s == SettledTwice
}

// ErrCallbackReused reports a callback id that was used before with another body.
var ErrCallbackReused = errors.New("the callback's id was used before with another body")

// Pay settles a callback in one transaction: it marks an unpaid order as paid, if the price matches, and records the
// callback with its settlement. A repeated callback changes nothing and returns the same settlement, with replayed
// true. Of a payment and a concurrent cancellation of the order, one takes effect. Errors: sale.ErrNotFound if the
// order is not a row, and nothing is recorded; ErrCallbackReused.
func (s *Store) Pay(ctx context.Context, p Payment) (settled Settlement, replayed bool, err error) {
	err = s.Update(ctx, "store: pay order "+p.OrderID.String(), func(ctx context.Context, c Conn) (err error) {
		settled, replayed, err = settle(ctx, c, p)
		return err
	})
	return settled, replayed, err
}

// settle locks the order first, so that a concurrent call with the same callback waits and finds it recorded.
func settle(ctx context.Context, c Conn, p Payment) (settled Settlement, replayed bool, err error) {
	o, missing := readRow(ctx, c, p.OrderID, c.Dialect().ForUpdate)
	if missing != nil && !errors.Is(missing, sale.ErrNotFound) {
		return "", false, missing
	}
	var digest string
	const recorded = "SELECT outcome, digest FROM payments WHERE callback_id = $1"
	err = Get(ctx, c, []any{&settled, &digest}, recorded, p.CallbackID)
	switch {
	case err == nil && digest != p.Digest:
		return "", false, ErrCallbackReused
	case err == nil:
		return settled, true, nil
	case !errors.Is(err, sale.ErrNotFound):
		return "", false, err
	case missing != nil:
		return "", false, missing
	}
	if settled, err = decideSettlement(ctx, c, p, o); err != nil {
		return "", false, err
	}
	if settled == SettledPaid && o.Status == sale.StatusCreated {
		if err := markPaid(ctx, c, p, o.Order); err != nil {
			return "", false, err
		}
	}
	return settled, false, insertPayment(ctx, c, p, o, settled)
}

// markPaid marks an order as paid by a payment. An earlier callback of this payment may have had another amount: its
// refund is withdrawn, unless an admin has settled it.
func markPaid(ctx context.Context, c Conn, p Payment, o sale.Order) error {
	_, err := c.Exec(ctx, "UPDATE orders SET status = 'paid', reference = $2, updated_at = "+c.Dialect().Now+
		" WHERE id = $1 AND status = 'created'", int64(o.ID), p.Reference)
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, "UPDATE payments SET refund = 0"+
		" WHERE order_id = $1 AND reference = $2 AND refund = 1 AND settled_at IS NULL", int64(o.ID), p.Reference)
	if err != nil {
		return err
	}
	return appendOutbox(ctx, c, OutboxPaid, o)
}

// decideSettlement decides the settlement of a callback whose order is locked.
func decideSettlement(ctx context.Context, c Conn, p Payment, o OrderRow) (Settlement, error) {
	if p.Event == EventFailed {
		return SettledFailed, nil
	}
	if o.Status == sale.StatusCancelled {
		return SettledCancelled, nil
	}
	var price sale.Price
	const query = "SELECT price_amount, currency FROM sales WHERE id = $1"
	err := Get(ctx, c, []any{&price.Amount, &price.Currency}, query, o.SaleID)
	switch {
	case err != nil:
		return "", err
	case price != p.Price:
		return SettledMismatch, nil
	case o.Status == sale.StatusPaid && o.Reference != p.Reference:
		return SettledTwice, nil
	}
	return SettledPaid, nil
}

// insertPayment records a settled callback. A refund is requested once per payment, also if several callbacks report
// the same payment, and not for the payment that paid the order.
func insertPayment(ctx context.Context, c Conn, p Payment, o OrderRow, settled Settlement) error {
	refund := 0
	if paidOrder := o.Status == sale.StatusPaid && o.Reference == p.Reference; settled.needsRefund() && !paidOrder {
		requested, err := Exists(ctx, c,
			"SELECT 1 FROM payments WHERE order_id = $1 AND reference = $2 AND refund = 1 LIMIT 1", int64(o.ID), p.Reference)
		if err != nil {
			return err
		}
		if !requested {
			refund = 1
		}
	}
	n, err := c.Exec(ctx, `INSERT INTO payments
		(callback_id, digest, order_id, sale_id, event, amount, currency, reference, outcome, refund)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (callback_id) DO NOTHING`, p.CallbackID, p.Digest,
		int64(o.ID), o.SaleID, string(p.Event), p.Price.Amount, p.Price.Currency, p.Reference, string(settled), refund)
	if err == nil && n == 0 { // a concurrent callback about another order; a retry detects that its body differs
		err = unavailable(errors.New("another callback with this id is settled concurrently"))
	}
	return err
}

// Callback is a settled callback of the payment provider. Its JSON is a line of an archive.
type Callback struct {
	Number int64 `json:"number"` // ascending
	Payment
	SaleID     string     `json:"sale_id"`
	At         time.Time  `json:"at"`
	Settlement Settlement `json:"outcome"`
	Refund     bool       `json:"refund,omitempty"`    // money was received that paid no order
	SettledAt  time.Time  `json:"settled_at,omitzero"` // when an admin has settled the refund; zero: it is open
	SettledBy  string     `json:"settled_by,omitempty"`
	Note       string     `json:"note,omitempty"`
}

// CallbackQuery selects callbacks. The zero value selects all.
type CallbackQuery struct {
	OpenRefunds bool // only those whose refund is not settled
	OrderID     sale.OrderID
	SaleID      string
	After       int64 // higher numbers only
	Limit       int   // see PageSize
}

const callbackColumns = `id, callback_id, digest, order_id, sale_id, event, amount, currency, reference, at, outcome,
	refund, settled_at, coalesce(settled_by, ''), coalesce(note, '')`

func scanCallback(row Scanner) (c Callback, err error) {
	err = row.Scan(&c.Number, &c.CallbackID, &c.Digest, &c.OrderID, &c.SaleID, &c.Event, &c.Price.Amount,
		&c.Price.Currency, &c.Reference, Time(&c.At), &c.Settlement, &c.Refund, Time(&c.SettledAt), &c.SettledBy, &c.Note)
	return c, err
}

// Callbacks returns one page of callbacks, oldest first.
func (s *Store) Callbacks(ctx context.Context, q CallbackQuery) ([]Callback, error) {
	var f Filter
	orderBy := "id"
	if q.SaleID != "" && q.OrderID == 0 && !q.OpenRefunds {
		orderBy = f.ofSale(q.SaleID, q.After, false)
	} else {
		f.Add("id > ?", q.After)
		f.Equal("sale_id", q.SaleID)
	}
	if q.OpenRefunds {
		f.AddConstant("refund = 1 AND settled_at IS NULL")
	}
	f.Equal("order_id", int64(q.OrderID))
	page := f.Page(orderBy, q.Limit)
	return ViewRows(ctx, s.DB, "store: callbacks", scanCallback, "SELECT "+callbackColumns+" FROM payments"+page,
		f.Args...)
}

// SettleRefund records that an admin has refunded the money of a callback, and logs it. A second call changes nothing.
// Errors: sale.ErrNotFound; a *RefusedError if there is nothing to refund.
func (s *Store) SettleRefund(ctx context.Context, number int64, note string) (Callback, error) {
	op := fmt.Sprintf("store: settle payment %d", number)
	return Value(ctx, s.Update, op, func(ctx context.Context, c Conn) (found Callback, err error) {
		d := c.Dialect()
		const read = "SELECT " + callbackColumns + " FROM payments WHERE id = $1"
		found, err = GetRow(ctx, c, scanCallback, read+d.ForUpdate, number)
		if err == nil && !found.Refund {
			err = Refused("This payment paid an order, so there is nothing to refund.")
		}
		if err != nil || !found.SettledAt.IsZero() {
			return found, err
		}
		found, err = GetRow(ctx, c, scanCallback, "UPDATE payments SET settled_at = "+d.Now+
			", settled_by = $2, note = $3 WHERE id = $1 RETURNING "+callbackColumns, number, Text(Actor(ctx)), Text(note))
		if err != nil {
			return found, err
		}
		detail := fmt.Sprintf("payment %d, reference %s: %s", number, found.Reference, note)
		return found, logOrder(ctx, c, "payment.settle", sale.Order{ID: found.OrderID, SaleID: found.SaleID}, detail)
	})
}
