package rebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
)

// Restored counts the orders of RestoreAt by result.
type Restored struct {
	Rows     int // rows in SQL
	Known    int // orders that Redis has
	Requeued int // orders that got a unit and a message again
	Unbacked int // orders without a unit or slot, which became dead letters
	// Skipped has the orders of sales that Redis does not have. They are not rows and were not restored.
	Skipped []sale.Order
}

// Guard reports which data in Redis is verified (guard.Guard).
type Guard interface {
	Generation() int64
	RestoreFence(ctx context.Context) (fence int64, err error)
	Deployment() int64
}

// Restorer restores accepted orders that a shard may have lost. It implements worker.Source. It is safe for concurrent
// use.
type Restorer struct {
	guard  Guard
	client redisconn.Client
	shard  keyspace.Shard
	rows   journal.Rows
}

// NewRestorer returns a Restorer for the orders of one shard. The client does not have to be guarded, because the
// script checks the fence.
func NewRestorer(guard Guard, client redisconn.Client, shard keyspace.Shard, rows journal.Rows) *Restorer {
	return &Restorer{guard, client, shard, rows}
}

const (
	// restorePart is the number of orders per query to SQL.
	restorePart = 5000
	// restoreChunkSize bounds one run of the script, which blocks Redis.
	restoreChunkSize = 200
	// maxRechecks bounds how often the rows of a chunk are read while units of its sale are returned.
	maxRechecks = 10
)

// Generation returns the generation of the data in Redis.
func (r *Restorer) Generation() int64 { return r.guard.Generation() }

// RestoreOrders is RestoreAt with the current fence. It returns the skipped orders without those of rehearsals, which
// are removed on purpose.
func (r *Restorer) RestoreOrders(ctx context.Context, orders []sale.Order) (skipped []sale.Order, err error) {
	fence, err := r.guard.RestoreFence(ctx)
	if err == nil && fence == 0 {
		err = guard.ErrUnverified
	}
	if err != nil {
		return nil, err
	}
	done, err := r.RestoreAt(ctx, fence, orders)
	return slices.DeleteFunc(done.Skipped, func(o sale.Order) bool { return sale.IsRehearsal(o.SaleID) }), err
}

// RestoreAt makes sure that each of these accepted orders is a row in SQL or known to the Redis with this fence. It is
// idempotent: no order gets a second unit. It skips orders of sales that are archived or not in SQL. An error wraps
// sale.ErrUnavailable.
func (r *Restorer) RestoreAt(ctx context.Context, fence int64, orders []sale.Order) (Restored, error) {
	var done Restored
	for part := range slices.Chunk(orders, restorePart) {
		missing, err := r.withoutRows(ctx, part, &done)
		if err != nil {
			return done, fmt.Errorf("restore orders: %w", err)
		}
		for _, m := range missing {
			for chunk := range slices.Chunk(m.orders, restoreChunkSize) {
				if err := r.restoreChunk(ctx, fence, &saleOrders{m.saleID, m.returned, chunk}, &done); err != nil {
					return done, fmt.Errorf("restore orders: %w", err)
				}
			}
		}
	}
	return done, nil
}

// saleOrders holds orders of one sale that were not rows, and the number of its last return before the rows were read.
type saleOrders struct {
	saleID, returned string
	orders           []sale.Order
}

// withoutRows returns the orders that are not rows. It reads the number of the last return of each sale first. An order
// that becomes a row later, is cancelled and releases its slot would seem lost to the script; the script detects this
// by the number.
func (r *Restorer) withoutRows(ctx context.Context, orders []sale.Order, done *Restored) ([]*saleOrders, error) {
	bySale, returned := map[string]*saleOrders{}, map[string]*redis.StringCmd{}
	cmds, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, o := range orders {
			if bySale[o.SaleID] == nil {
				bySale[o.SaleID] = &saleOrders{saleID: o.SaleID}
				returned[o.SaleID] = p.HGet(ctx, r.shard.Sale(o.SaleID), "returned")
			}
		}
		return nil
	})
	if errors.Is(err, redis.Nil) { // a sale has no returns, or is unknown
		err = redisconn.PipelineError(cmds)
	}
	if err != nil {
		return nil, sale.Unavailable(err)
	}
	missing, err := journal.NotRows(ctx, r.rows, orders)
	if err != nil {
		return nil, err
	}
	for _, o := range missing {
		m := bySale[o.SaleID]
		m.returned, m.orders = returned[o.SaleID].Val(), append(m.orders, o)
	}
	done.Rows += len(orders) - len(missing)
	sales := slices.Collect(maps.Values(bySale))
	slices.SortFunc(sales, func(a, b *saleOrders) int { return cmp.Compare(a.saleID, b.saleID) })
	return sales, nil
}

// restoreChunk runs the script, and reads the rows again whenever units of the sale were returned since they were read.
func (r *Restorer) restoreChunk(ctx context.Context, fence int64, s *saleOrders, done *Restored) error {
	for range maxRechecks {
		recheck, err := r.runScript(ctx, fence, s, done)
		if err != nil || !recheck {
			return err
		}
		missing, err := r.withoutRows(ctx, s.orders, done)
		if err != nil {
			return err
		}
		if s = missing[0]; len(s.orders) == 0 {
			return nil
		}
	}
	return fmt.Errorf("units of sale %s are returned faster than its rows are read: %w", s.saleID, sale.ErrUnavailable)
}

// runScript reports whether the rows must be read again. Then the script changed nothing.
func (r *Restorer) runScript(
	ctx context.Context, fence int64, s *saleOrders, done *Restored,
) (recheck bool, err error) {
	shard := r.shard
	keys := []string{
		shard.Guard(), shard.Sale(s.saleID), shard.Stock(s.saleID), shard.Buyers(s.saleID), shard.Ready(), shard.Wake(),
		shard.Dead().Times(), shard.Dead().Letters(), shard.Dead().Index(),
	}
	args := []any{mark(fence, r.guard.Deployment()), s.saleID, s.returned}
	for _, o := range s.orders {
		args = append(args, o.ID.String(), o.Buyer)
	}
	result, err := redisscript.Run(ctx, r.client, "restore_orders", keys, args...).Text()
	switch {
	case err != nil:
		return false, sale.Unavailable(err)
	case result == "fenced":
		return false, guard.ErrFenced
	case result == "returned":
		return true, nil
	case result == "unknown_sale": // a rebuild stores every sale of SQL that is not archived before orders are restored
		done.Skipped = append(done.Skipped, s.orders...)
		return false, nil
	case len(result) != len(s.orders):
		return false, fmt.Errorf("the script returned %q for %d orders", result, len(s.orders))
	}
	for _, letter := range result {
		switch letter {
		case 'k':
			done.Known++
		case 'r':
			done.Requeued++
		case 'u':
			done.Unbacked++
		}
	}
	return false, nil
}
