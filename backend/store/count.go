package store

import (
	"context"
	"math"

	"sluice/backend/sale"
	"sluice/backend/spread"
)

// Instant is the progress of a part of a sale in Redis at the moment at which its units were counted there.
type Instant struct {
	Accepted   int64          // highest serial of an accepted order
	Returned   int64          // number of the last unit that Redis took back
	Unrecorded []sale.OrderID // orders with a unit that Redis has taken back; their rows may not record it yet
}

// Always is the instant after all others.
var Always = Instant{Accepted: math.MaxInt64, Returned: math.MaxInt64}

// Count is the part of a sale's audit that is read from SQL, as of one instant.
type Count struct {
	Stock     int64 // units in total; of a segment: of its allocation
	Version   int64 // of the allocation of a segment
	Total     int64 // units of the sale
	Allocated int64 // sum of the allocations of all segments; Total if the sale lives in one shard
	Sold      int64 // the sale's column sold; equal to the number of orders that are not cancelled
	Rows      int64 // orders that are not cancelled and were accepted up to the Instant
	Returning int64 // cancelled orders accepted up to the Instant with a unit that was not back in Redis then
	Last      int64 // highest serial of an order that is not cancelled; 0: there is none
	// Among has those of the orders passed to Count that are rows, in any order. Rows that CancelDead inserted for orders
	// with a unit are left out.
	Among []sale.OrderID
}

// Count counts the rows of a part of a sale as of an instant of Redis in the past. It returns sale.ErrNotFound for an
// unknown sale or segment.
func (s *Store) Count(ctx context.Context, of spread.Part, at Instant, among []sale.OrderID) (n Count, err error) {
	err = s.Snapshot(ctx, "store: count sale "+of.SaleID, func(ctx context.Context, c Conn) error {
		in := c.Dialect().In
		first, end := of.Serials()
		err := Get(ctx, c, []any{&n.Total, &n.Sold, &n.Rows, &n.Returning, &n.Last}, `SELECT stock, sold,
			(SELECT count(*) FROM orders WHERE sale_id = $1 AND status <> 'cancelled' AND serial BETWEEN $2 AND $3),
			(SELECT count(*) FROM orders WHERE sale_id = $1 AND status = 'cancelled' AND serial BETWEEN $2 AND $3
				AND (return_number > $4 OR return_number IS NULL AND NOT id `+in("$5")+`)),
			(SELECT coalesce(max(serial), 0) FROM orders
				WHERE sale_id = $1 AND status <> 'cancelled' AND serial BETWEEN $2 AND $6)
			FROM sales WHERE id = $1`,
			of.SaleID, first, min(at.Accepted, end), at.Returned, int64s(at.Unrecorded), end)
		if err != nil {
			return err
		}
		n.Stock, n.Allocated = n.Total, n.Total
		if of.Spread > 1 {
			err = Get(ctx, c, []any{&n.Stock, &n.Version, &n.Allocated}, `SELECT units, version,
				(SELECT CAST(sum(units) AS bigint) FROM segments WHERE sale_id = $1)
				FROM segments WHERE sale_id = $1 AND segment = $2`, of.SaleID, of.Segment)
		}
		if err != nil || len(among) == 0 {
			return err
		}
		n.Among, err = Select(ctx, c, Column[sale.OrderID], `SELECT id FROM orders WHERE sale_id = $1
			AND (status <> 'cancelled' OR return_number IS NULL OR return_number >= 0) AND id `+in("$2"), of.SaleID, int64s(among))
		return err
	})
	return n, err
}
