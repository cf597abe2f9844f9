package store

import (
	"context"
	"time"

	"sluice/backend/sale"
)

// The unit of a cancelled order goes back to Redis in three steps:
//
//  1. SQL cancels the row and subtracts one from the sale's sold units, in one transaction. The row's return_number is
//     NULL: the unit is returning.
//  2. Redis frees the buyer's slot and the unit, once, and numbers that return.
//  3. The row records the number.
//
// If a process crashes between the steps, the row is still returning, and the remaining steps are repeated.

const isReturning = "status = 'cancelled' AND return_number IS NULL"

// The values of return_number that are not the number of a return.
const (
	diedInQueue = -1 // the order is not cancelled, or it died in the queue and its unit returns with its dead letter
	heldNoUnit  = 0  // Redis did not count the order as holding a unit
)

// Return records that the unit of a cancelled order is back in Redis.
type Return struct {
	ID     sale.OrderID
	Number int64 // of the return within its sale, from 1; 0: Redis did not count the order as holding a unit
}

// Returning returns up to limit orders, by id, that have an id above after, were cancelled at least age ago, and whose
// unit is not back in Redis.
func (s *Orders) Returning(
	ctx context.Context, after sale.OrderID, age time.Duration, limit int,
) (orders []sale.Order, err error) {
	err = s.db.View(ctx, "store: returning orders", func(ctx context.Context, c Conn) error {
		orders, err = Select(ctx, c, scanOrder, "SELECT "+orderColumns+" FROM orders WHERE "+isReturning+
			" AND id > $1 AND updated_at <= "+c.Dialect().Ago("$2")+" ORDER BY id LIMIT $3",
			int64(after), age.Milliseconds(), limit)
		return err
	})
	return orders, err
}

// MarkReturned records that units are back in Redis. It is idempotent: the first number of an order stays.
func (s *Orders) MarkReturned(ctx context.Context, returns []Return) error {
	if len(returns) == 0 {
		return nil
	}
	type record struct {
		ID     int64 `json:"order_id"`
		Number int64 `json:"number"`
	}
	records := make([]record, len(returns))
	for i, r := range returns {
		records[i] = record{int64(r.ID), r.Number}
	}
	return s.db.Update(ctx, "store: mark returned", func(ctx context.Context, c Conn) error {
		d := c.Dialect()
		_, err := c.Exec(ctx, "UPDATE orders SET return_number = returned.number, updated_at = "+d.Now+
			" FROM ("+d.Records("$1", "order_id bigint, number bigint")+
			") AS returned WHERE id = returned.order_id AND "+isReturning,
			JSON(records))
		return err
	})
}

// Returned returns those of the orders that are cancelled rows and whose unit is back in Redis, or was never held.
func (s *Orders) Returned(ctx context.Context, ids []sale.OrderID) (done []sale.OrderID, err error) {
	err = s.db.View(ctx, "store: returned orders", func(ctx context.Context, c Conn) error {
		done, err = Select(ctx, c, Column[sale.OrderID],
			"SELECT id FROM orders WHERE status = 'cancelled' AND return_number IS NOT NULL AND id "+c.Dialect().In("$1"),
			int64s(ids))
		return err
	})
	return done, err
}
