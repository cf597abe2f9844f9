package admin

import (
	"context"
	"fmt"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// OrderDetails is an order row with its payment callbacks.
type OrderDetails struct {
	store.OrderRow
	Callbacks []store.Callback
}

// Order returns one order row. Errors: sale.ErrNotFound, or one that wraps sale.ErrUnavailable.
func (s *Service) Order(ctx context.Context, id sale.OrderID) (OrderDetails, error) {
	rows, err := s.store.OrderRows(ctx, store.OrderQuery{ID: id})
	if err != nil {
		return OrderDetails{}, err
	}
	if len(rows) == 0 {
		return OrderDetails{}, fmt.Errorf("order %s: %w", id, sale.ErrNotFound)
	}
	callbacks, err := s.store.Callbacks(ctx, store.CallbackQuery{OrderID: id, Limit: 1000})
	if err != nil {
		return OrderDetails{}, err
	}
	return OrderDetails{OrderRow: rows[0], Callbacks: callbacks}, nil
}

// CancelOrder cancels an unpaid order row and returns its unit. Repeating the call changes nothing. If Redis does not
// answer, the order is cancelled nevertheless; the result has Returning set, and a HoldExpirer returns the unit
// later. Errors: sale.ErrNotFound if the order is not a row; a *store.RefusedError if it is paid or its sale is
// archived; or one that wraps sale.ErrUnavailable, after which the call may be repeated.
func (s *Service) CancelOrder(ctx context.Context, id sale.OrderID) (OrderDetails, error) {
	ctx, cancel := detached(ctx)
	defer cancel()
	o, changed, err := s.store.CancelOrder(ctx, id)
	if err != nil {
		return OrderDetails{}, err
	}
	if changed {
		s.counters.cancelled.WithLabelValues(byAdmin).Inc()
		_, err := returnUnits(ctx, s.store, s.stock, s.counters, downShards{}, []sale.Order{o})
		if err != nil {
			s.log.Warn("unit of a cancelled order is not on sale again yet, retrying",
				"order", id.String(), "sale", o.SaleID, "err", err)
		}
	}
	return s.Order(ctx, id)
}
