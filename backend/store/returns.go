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
	// diedInQueue is the value of an order that CancelDead has cancelled: the unit returns with its dead letter. It is
	// also the default of the column, which every order has until it is cancelled.
	diedInQueue = -1
	heldNoUnit  = 0 // the order held no unit in Redis
)

// Return records that the unit of a cancelled order is back in Redis.
type Return struct {
	ID     sale.OrderID `json:"order_id"`
	Number int64        `json:"number"` // of the return within its sale, from 1; or heldNoUnit
}

// Returning returns up to limit orders, by id, that have an id above after, were cancelled at least age ago, and whose
// unit is not back in Redis.
func (s *Store) Returning(
	ctx context.Context, after sale.OrderID, age time.Duration, limit int,
) ([]sale.Order, error) {
	return ViewRows(ctx, s.DB, "store: returning orders", scanOrder, "SELECT "+orderColumns+" FROM orders WHERE "+
		isReturning+" AND id > $1 AND updated_at <= "+s.Dialect().Ago("$2")+" ORDER BY id LIMIT $3",
		int64(after), age.Milliseconds(), limit)
}

// MarkReturned records that units are back in Redis. It is idempotent: the first number of an order stays.
func (s *Store) MarkReturned(ctx context.Context, returns []Return) error {
	if len(returns) == 0 {
		return nil
	}
	d := s.Dialect()
	_, err := UpdateRows(ctx, s.DB, "store: mark returned", "UPDATE orders SET return_number = returned.number, "+
		"updated_at = "+d.Now+" FROM ("+d.Records("$1", "order_id bigint, number bigint")+
		") AS returned WHERE id = returned.order_id AND "+isReturning, JSON(returns))
	return err
}

// LastReturn returns the highest number of a return of a sale that a row has, or 0.
func (s *Store) LastReturn(ctx context.Context, saleID string) (number int64, err error) {
	const query = `SELECT coalesce(max(return_number), 0) FROM orders
		WHERE sale_id = $1 AND status = 'cancelled' AND return_number > 0`
	return ViewRow(ctx, s.DB, "store: last return of sale "+saleID, Column[int64], query, saleID)
}

// Returned returns those of the orders that are cancelled rows and whose unit is back in Redis, or was never held.
func (s *Store) Returned(ctx context.Context, ids []sale.OrderID) ([]sale.Order, error) {
	return ViewRows(ctx, s.DB, "store: returned orders", scanOrder, "SELECT "+orderColumns+" FROM orders "+
		"WHERE status = 'cancelled' AND return_number IS NOT NULL AND id "+s.Dialect().In("$1"), int64s(ids))
}
