package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sluice/backend/sale"
)

// What operators read: rows with all that is known of them, and the callbacks of the payment provider.

// Row is an order row with all that is known of it.
type Row struct {
	sale.Order
	UpdatedAt   time.Time
	Reference   string // of the payment
	CancelledBy string // an operator, or "hold"
	Note        string // why it was cancelled
	Returning   bool   // cancelled, and its unit is on its way back to Redis
	Unbacked    bool   // cancelled, and Redis had no unit to take back from it
}

// RowQuery selects rows. The zero value selects all.
type RowQuery struct {
	ID     sale.OrderID
	SaleID string
	Status sale.Status
	After  sale.OrderID // rows with higher ids only
	Limit  int          // 1 to 1000; 0: 100
}

func pageOf(limit int) int {
	if limit <= 0 {
		return 100
	}
	return min(limit, 1000)
}

// filter joins conditions with their arguments. Names come from this package, never from outside.
type filter struct {
	conditions []string
	args       []any
}

func (f *filter) add(condition string, arg any) {
	f.args = append(f.args, arg)
	f.conditions = append(f.conditions, strings.Replace(condition, "?", "$"+strconv.Itoa(len(f.args)), 1))
}

func (f *filter) where() string { return strings.Join(f.conditions, " AND ") }

// page ends a query: the conditions, the order and the limit.
func (f *filter) page(limit int) string {
	f.args = append(f.args, pageOf(limit))
	return " WHERE " + f.where() + " ORDER BY id LIMIT $" + strconv.Itoa(len(f.args))
}

// Rows returns one page of rows, by order id.
func (s *Store) Rows(ctx context.Context, q RowQuery) ([]Row, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var f filter
	f.add("id > ?", int64(q.After))
	if q.ID != 0 {
		f.add("id = ?", int64(q.ID))
	}
	if q.SaleID != "" {
		f.add("sale_id = ?", q.SaleID)
	}
	if q.Status != "" {
		f.add("status = ?", string(q.Status))
	}
	var rows []Row
	err := s.engine.direct().query(ctx, func(r row) error {
		var found Row
		var due, updated instant
		err := r.Scan(&found.ID, &found.SaleID, &found.Buyer, &found.Nth, &found.Serial, &found.Status, &due, &updated,
			&found.Reference, &found.CancelledBy, &found.Note, &found.Returning, &found.Unbacked)
		found.DueAt, found.UpdatedAt = due.Time, updated.Time
		rows = append(rows, found)
		return err
	}, "SELECT "+orderColumns+", updated_at, coalesce(reference, ''), coalesce(cancelled_by, ''), coalesce(note, ''), status = 'cancelled' AND returned IS NULL, "+
		"status = 'cancelled' AND coalesce(returned, -1) = 0 FROM orders"+f.page(q.Limit), f.args...)
	if err != nil {
		return nil, fmt.Errorf("order: rows: %w", err)
	}
	return rows, nil
}

// Callback is a settled callback of the payment provider.
type Callback struct {
	Number int64
	Payment
	SaleID     string
	At         time.Time
	Settlement Settlement
	Refund     bool      // money came that no order took
	SettledAt  time.Time // when a person has seen to it; zero: nobody yet
	SettledBy  string
	Note       string
}

// CallbackQuery selects callbacks. The zero value selects all.
type CallbackQuery struct {
	OpenRefunds bool // only those whose money must go back, and nobody has seen to it
	OrderID     sale.OrderID
	SaleID      string
	After       int64 // higher numbers only
	Limit       int   // 1 to 1000; 0: 100
}

// Callbacks returns one page of callbacks, the oldest first.
func (s *Store) Callbacks(ctx context.Context, q CallbackQuery) ([]Callback, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	callbacks, err := callbacksOf(ctx, s.engine.direct(), q)
	if err != nil {
		return nil, fmt.Errorf("order: callbacks: %w", err)
	}
	return callbacks, nil
}

func callbacksOf(ctx context.Context, db conn, q CallbackQuery) ([]Callback, error) {
	var f filter
	f.add("id > ?", q.After)
	if q.OpenRefunds {
		f.conditions = append(f.conditions, "refund = 1", "settled_at IS NULL")
	}
	if q.OrderID != 0 {
		f.add("order_id = ?", int64(q.OrderID))
	}
	if q.SaleID != "" {
		f.add("sale_id = ?", q.SaleID)
	}
	var callbacks []Callback
	err := db.query(ctx, func(r row) error {
		var c Callback
		var at, settled instant
		var refund int64
		err := r.Scan(&c.Number, &c.CallbackID, &c.Digest, &c.OrderID, &c.SaleID, &c.Event, &c.Price.Amount, &c.Price.Currency, &c.Reference, &at,
			&c.Settlement, &refund, &settled, &c.SettledBy, &c.Note)
		c.At, c.SettledAt, c.Refund = at.Time, settled.Time, refund == 1
		callbacks = append(callbacks, c)
		return err
	}, `SELECT id, callback_id, digest, order_id, sale_id, event, amount, currency, reference, at, outcome, refund, settled_at,
		coalesce(settled_by, ''), coalesce(note, '') FROM payments`+f.page(q.Limit), f.args...)
	return callbacks, err
}

// SettleRefund notes that a person has seen to the money of a callback, and writes it in the desk log. To do it again changes nothing. Errors:
// sale.ErrNotFound; sale.ErrConflict when the callback's money need not go back.
func (s *Store) SettleRefund(ctx context.Context, number int64, actor, note string) (c Callback, err error) {
	err = s.change(ctx, func(ctx context.Context, db conn) error {
		d := s.engine.dialect()
		var refund int64
		err := one(ctx, db, []any{&refund}, "SELECT refund FROM payments WHERE id = $1"+d.forUpdate, number)
		switch {
		case errors.Is(err, errNoRow):
			return sale.ErrNotFound
		case err != nil:
			return err
		case refund == 0:
			return fmt.Errorf("there is nothing to give back: %w", sale.ErrConflict)
		}
		n, err := db.exec(ctx, "UPDATE payments SET settled_at = "+d.now+", settled_by = $2, note = $3 WHERE id = $1 AND settled_at IS NULL",
			number, storable(actor), storable(note))
		if err != nil {
			return err
		}
		found, err := callbacksOf(ctx, db, CallbackQuery{After: number - 1, Limit: 1})
		if err != nil {
			return err
		}
		c = found[0]
		if n == 0 {
			return nil
		}
		return record(ctx, db, actor, "payment.settle", c.OrderID.String(), fmt.Sprintf("payment %d, reference %s: %s", number, c.Reference, note))
	})
	if err != nil {
		return Callback{}, fmt.Errorf("order: settle payment %d: %w", number, err)
	}
	return c, nil
}
