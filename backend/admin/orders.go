package admin

import (
	"context"
	"fmt"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// OrderView is an order that is a row, and the callbacks of the payment provider about it.
type OrderView struct {
	store.OrderRow
	Callbacks []store.Callback
}

// Order shows one order that is a row. It returns sale.ErrNotFound, or wraps sale.ErrUnavailable.
func (d *Desk) Order(ctx context.Context, id sale.OrderID) (OrderView, error) {
	rows, err := d.store.OrderRows(ctx, store.OrderQuery{ID: id})
	if err != nil {
		return OrderView{}, err
	}
	if len(rows) == 0 {
		return OrderView{}, fmt.Errorf("order %s: %w", id, sale.ErrNotFound)
	}
	callbacks, err := d.store.Callbacks(ctx, store.CallbackQuery{OrderID: id, Limit: 1000})
	if err != nil {
		return OrderView{}, err
	}
	return OrderView{OrderRow: rows[0], Callbacks: callbacks}, nil
}

// Orders lists one page of rows, by order id.
func (d *Desk) Orders(ctx context.Context, q store.OrderQuery) ([]store.OrderRow, error) {
	return d.store.OrderRows(ctx, q)
}

// CancelOrder cancels an order that is a row and not paid, and gives its unit back. To do it again changes nothing. When Redis does not answer, the order
// is cancelled all the same; the view says that its unit is on its way back, and a Returner brings it. Errors: sale.ErrNotFound when it is no row;
// sale.ErrConflict when it is paid; or one that wraps sale.ErrUnavailable: ask again.
func (d *Desk) CancelOrder(ctx context.Context, actor string, id sale.OrderID, reason string) (OrderView, error) {
	ctx, cancel := finish(ctx)
	defer cancel()
	o, changed, err := d.store.CancelOrder(ctx, id, actor, reason)
	if err != nil {
		return OrderView{}, err
	}
	if changed {
		d.count.cancelled.WithLabelValues("desk").Inc()
		n, err := giveBack(ctx, d.store, d.stock, []sale.Order{o})
		d.count.returned.Add(float64(n))
		if err != nil {
			d.log.Warn("a cancelled order's unit is not on sale again yet; trying again", "order", id.String(), "sale", o.SaleID, "err", err)
		}
	}
	return d.Order(ctx, id)
}

// Callbacks lists one page of the payment provider's callbacks, the oldest first.
func (d *Desk) Callbacks(ctx context.Context, q store.CallbackQuery) ([]store.Callback, error) {
	return d.store.Callbacks(ctx, q)
}

// SettleRefund notes that the money of a callback was given back. To do it again changes nothing. Errors: sale.ErrNotFound; sale.ErrConflict when there is
// nothing to give back.
func (d *Desk) SettleRefund(ctx context.Context, actor string, number int64, note string) (store.Callback, error) {
	return d.store.SettleRefund(ctx, number, actor, note)
}
