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
	Stock     int64          // units in total; of a segment: of its allocation
	Version   int64          // of the allocation of a segment
	Total     int64          // units of the sale
	Allocated int64          // sum of the allocations of all segments; Total if the sale lives in one shard
	Sold      int64          // the sale's column sold; equal to the number of orders that are not cancelled
	Rows      int64          // orders that are not cancelled and were accepted up to the Instant
	Returning int64          // cancelled orders accepted up to the Instant with a unit that was not back in Redis then
	Last      int64          // highest serial of an order that is not cancelled; 0: there is none
	Among     []sale.OrderID // those of the orders passed to Count that are rows, without cancelled dead orders; unordered
}

// Count counts the rows of a part of a sale as of an instant of Redis in the past. It returns sale.ErrNotFound for an
// unknown sale or segment.
func (s *Store) Count(ctx context.Context, of spread.Part, at Instant, among []sale.OrderID) (n Count, err error) {
	err = s.Snapshot(ctx, "store: count sale "+of.SaleID, func(ctx context.Context, c Conn) error {
		if err := n.readStock(ctx, c, of); err != nil {
			return err
		}
		first, end := of.Serials()
		until := min(at.Accepted, end)
		const rows = `SELECT count(*) FROM orders WHERE sale_id = $1 AND serial BETWEEN $2 AND $3
			AND status <> 'cancelled'`
		if err := Get(ctx, c, []any{&n.Rows}, rows, of.SaleID, first, until); err != nil {
			return err
		}
		in := c.Dialect().In
		returning := `SELECT count(*) FROM orders WHERE sale_id = $1 AND status = 'cancelled'
			AND serial BETWEEN $2 AND $3 AND (return_number > $4 OR return_number IS NULL AND NOT id ` + in("$5") + ")"
		err := Get(ctx, c, []any{&n.Returning}, returning, of.SaleID, first, until, at.Returned,
			int64s(at.Unrecorded))
		if err != nil {
			return err
		}
		const last = `SELECT coalesce(max(serial), 0) FROM orders WHERE sale_id = $1 AND serial BETWEEN $2 AND $3
			AND status <> 'cancelled'`
		if err := Get(ctx, c, []any{&n.Last}, last, of.SaleID, first, end); err != nil || len(among) == 0 {
			return err
		}
		n.Among, err = Select(ctx, c, Column[sale.OrderID], `SELECT id FROM orders WHERE sale_id = $1
			AND (status <> 'cancelled' OR return_number IS NULL OR return_number >= 0) AND id `+in("$2"), of.SaleID, int64s(among))
		return err
	})
	return n, err
}

// readStock reads the units of a part and of its sale.
func (n *Count) readStock(ctx context.Context, c Conn, of spread.Part) error {
	err := Get(ctx, c, []any{&n.Total, &n.Sold}, "SELECT stock, sold FROM sales WHERE id = $1", of.SaleID)
	if err != nil || of.Spread < 2 {
		n.Stock, n.Allocated = n.Total, n.Total
		return err
	}
	const allocation = "SELECT units, version FROM segments WHERE sale_id = $1 AND segment = $2"
	if err := Get(ctx, c, []any{&n.Stock, &n.Version}, allocation, of.SaleID, of.Segment); err != nil {
		return err
	}
	const all = "SELECT CAST(coalesce(sum(units), 0) AS bigint) FROM segments WHERE sale_id = $1"
	return Get(ctx, c, []any{&n.Allocated}, all, of.SaleID)
}
