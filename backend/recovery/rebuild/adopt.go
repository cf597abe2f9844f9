package rebuild

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
)

// errFenced tells that a later rebuild has begun, or that Redis was emptied: what this one does is refused.
var errFenced = fmt.Errorf("another rebuild has begun: %w", sale.ErrUnavailable)

// Adopted counts what became of orders that Redis may have lost.
type Restored struct {
	Rows     int // rows already
	Known    int // Redis has them
	Requeued int // have their unit and their message again
	Unbacked int // dead letters, since their unit or their place was gone
}

type statuses interface {
	Statuses(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error)
}

// Adopter gives accepted orders back to a Redis that may have lost them. It is safe for concurrent use.
type Restorer struct {
	client redis.UniversalClient
	space  keyspace.Space
	rows   statuses
	script *redis.Script
}

// NewAdopter makes an Adopter. The client need not be guarded: what is done at another generation is refused.
func NewRestorer(client redis.UniversalClient, space keyspace.Space, rows statuses) *Restorer {
	return &Restorer{client: client, space: space, rows: rows, script: redisscript.Load("restore_orders")}
}

const (
	// adoptPart is how many orders are looked for in SQL at once.
	restorePart = 5000
	// adoptChunk bounds the time that Redis spends on one run of the script.
	restoreChunkSize = 200
	// adoptLooks is how often the rows of a chunk are looked at, while its sale's units are given back in between.
	maxRechecks = 10
)

// Adopt makes sure that each of these accepted orders is a row, or known to the Redis of this fence. It may be repeated, and no order gets a second unit.
// Orders of a sale that SQL does not have either are left out. An error wraps sale.ErrUnavailable.
func (a *Restorer) RestoreOrders(ctx context.Context, fence int64, orders []sale.Order) (Restored, error) {
	var done Restored
	for part := range slices.Chunk(orders, restorePart) {
		bySale := map[string][]sale.Order{}
		for _, o := range part {
			bySale[o.SaleID] = append(bySale[o.SaleID], o)
		}
		rest, err := a.withoutRows(ctx, bySale, &done)
		if err != nil {
			return done, fmt.Errorf("adopt: %w", err)
		}
		for _, u := range rest {
			for chunk := range slices.Chunk(u.orders, restoreChunkSize) {
				if err := a.restoreChunk(ctx, fence, unsettled{u.saleID, u.returned, chunk}, &done); err != nil {
					return done, fmt.Errorf("adopt: %w", err)
				}
			}
		}
	}
	return done, nil
}

// unsettled are orders of one sale that were no rows at a look that began when the sale had taken back this many.
type unsettled struct {
	saleID, returned string
	orders           []sale.Order
}

// look leaves out what is a row. How many orders each sale has taken back is asked first: an order that becomes a row after the look, is cancelled, and gives its place
// back, would seem lost to the script; it is told by that number.
func (a *Restorer) withoutRows(ctx context.Context, bySale map[string][]sale.Order, done *Restored) ([]unsettled, error) {
	var rest []unsettled
	var ids []sale.OrderID
	for _, saleID := range slices.Sorted(maps.Keys(bySale)) {
		returned, err := a.client.HGet(ctx, a.space.ShardOf(saleID).Sale(saleID), "returned").Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, unavailable(err)
		}
		rest = append(rest, unsettled{saleID: saleID, returned: returned})
		for _, o := range bySale[saleID] {
			ids = append(ids, o.ID)
		}
	}
	rows, err := a.rows.Statuses(ctx, ids)
	if err != nil {
		return nil, err
	}
	for i := range rest {
		u := &rest[i]
		u.orders = slices.DeleteFunc(bySale[u.saleID], func(o sale.Order) bool { _, isRow := rows[o.ID]; return isRow })
		done.Rows += len(bySale[u.saleID]) - len(u.orders)
	}
	return rest, nil
}

// adopt runs the script, and looks for rows again as long as orders were given back since.
func (a *Restorer) restoreChunk(ctx context.Context, fence int64, u unsettled, done *Restored) error {
	for range maxRechecks {
		again, err := a.run(ctx, fence, u, done)
		if err != nil || !again {
			return err
		}
		rest, err := a.withoutRows(ctx, map[string][]sale.Order{u.saleID: u.orders}, done)
		if err != nil {
			return err
		}
		if u = rest[0]; len(u.orders) == 0 {
			return nil
		}
	}
	return fmt.Errorf("the units of sale %s are given back too fast to look for its orders: %w", u.saleID, sale.ErrUnavailable)
}

// run tells whether the rows are to be looked at again. Nothing has changed then.
func (a *Restorer) run(ctx context.Context, fence int64, u unsettled, done *Restored) (again bool, err error) {
	shard := a.space.ShardOf(u.saleID)
	keys := []string{
		shard.Guard(), shard.Sale(u.saleID), shard.Stock(u.saleID), shard.Buyers(u.saleID), shard.Ready(), shard.Wake(), shard.Dead(), shard.DeadLetters(),
		shard.DeadIndex(),
	}
	args := []any{fence, u.saleID, u.returned}
	for _, o := range u.orders {
		args = append(args, o.ID.String(), o.Buyer)
	}
	answer, err := a.script.Run(ctx, a.client, keys, args...).Text()
	switch {
	case err != nil:
		return false, unavailable(err)
	case answer == "fenced":
		return false, errFenced
	case answer == "returned":
		return true, nil
	case answer == "unknown_sale":
		return false, nil // every sale of SQL is in place before anything is adopted
	case len(answer) != len(u.orders):
		return false, errors.New("the script answered " + answer)
	}
	for _, letter := range answer {
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
