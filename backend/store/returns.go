package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"sluice/backend/sale"
)

// A cancelled order's unit goes back in three steps. SQL cancels the row and counts one less as sold, in one transaction, and from then on the unit is
// "returning": the row says so until it is told otherwise. Redis then frees the buyer's place and the unit, once, and numbers that return. Last, the row
// is told the number. Whatever dies between the steps, the row is found among the returning ones and the rest is done again.

// Return says that Redis has the unit of a cancelled order back.
type Return struct {
	ID     sale.OrderID
	Number int64 // of the return within its sale, from 1; 0: Redis did not count the order as holding a unit
}

// Returning returns up to limit cancelled orders whose unit is not back in Redis and that were cancelled at least age ago, by order id, from those with
// an id above after.
func (s *Store) Returning(ctx context.Context, after sale.OrderID, age time.Duration, limit int) ([]sale.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var orders []sale.Order
	err := s.engine.direct().query(ctx, func(r row) error {
		o, err := scanOrder(r)
		orders = append(orders, o)
		return err
	}, "SELECT "+orderColumns+" FROM orders WHERE status = 'cancelled' AND returned IS NULL AND id > $1 AND updated_at <= "+s.engine.dialect().ago("$2")+
		" ORDER BY id LIMIT $3", int64(after), age.Milliseconds(), limit)
	if err != nil {
		return nil, fmt.Errorf("order: read returning orders: %w", err)
	}
	return orders, nil
}

// MarkReturned notes that Redis has these units back. It may be repeated: the first number of an order stays.
func (s *Store) MarkReturned(ctx context.Context, returns []Return) error {
	if len(returns) == 0 {
		return nil
	}
	pairs := make([][2]int64, len(returns))
	for i, r := range returns {
		pairs[i] = [2]int64{int64(r.ID), r.Number}
	}
	list, err := json.Marshal(pairs)
	if err != nil {
		return fmt.Errorf("order: mark returned: %w", err)
	}
	d := s.engine.dialect()
	err = s.change(ctx, func(ctx context.Context, db conn) error {
		_, err := db.exec(ctx, "UPDATE orders SET returned = list.b, updated_at = "+d.now+" FROM ("+fmt.Sprintf(d.pairs, "$1")+
			") AS list WHERE orders.id = list.a AND orders.status = 'cancelled' AND orders.returned IS NULL", string(list))
		return err
	})
	if err != nil {
		return fmt.Errorf("order: mark returned: %w", err)
	}
	return nil
}

// Returned returns those of the orders that are cancelled rows and have nothing more to give back.
func (s *Store) Returned(ctx context.Context, ids []sale.OrderID) ([]sale.OrderID, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var done []sale.OrderID
	err := s.engine.direct().query(ctx, func(r row) error {
		var id int64
		err := r.Scan(&id)
		done = append(done, sale.OrderID(id))
		return err
	}, "SELECT id FROM orders WHERE status = 'cancelled' AND returned IS NOT NULL AND id "+s.engine.dialect().among("$1"), numbers(ids))
	if err != nil {
		return nil, fmt.Errorf("order: read returned orders: %w", err)
	}
	return done, nil
}

// returningOf calls yield for the cancelled orders of a sale whose units are on their way back.
func (s *Store) returningOf(ctx context.Context, saleID string, yield func(sale.Order) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var orders []sale.Order
	err := s.engine.direct().query(ctx, func(r row) error {
		o, err := scanOrder(r)
		orders = append(orders, o)
		return err
	}, "SELECT "+orderColumns+" FROM orders WHERE sale_id = $1 AND status = 'cancelled' AND returned IS NULL", saleID)
	if err != nil {
		return fmt.Errorf("order: read returning orders of sale %s: %w", saleID, err)
	}
	for _, o := range orders {
		if err := yield(o); err != nil {
			return err
		}
	}
	return nil
}
