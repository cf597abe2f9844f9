package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
)

// Finder finds the orders that buyers hold in a Stock. It is safe for concurrent use.
type Finder struct {
	stock  *Stock
	sales  *OrderCache[string]
	search []chan struct{} // by shard: held by the search in progress
}

// NewFinder returns a Finder.
func NewFinder(stock *Stock) *Finder {
	f := &Finder{stock: stock, sales: NewOrderCache[string](saleCacheSize)}
	for range stock.cfg.Space.All() {
		f.search = append(f.search, make(chan struct{}, 1))
	}
	return f
}

// FindOrder finds an order that the buyer holds and that may not be a row in SQL yet. It reads Redis only. It returns
// sale.ErrNotFound, or an error that wraps sale.ErrUnavailable.
//
// The order is in the shard that allocated its id. If the process knows the sale of the order (see Remember), FindOrder
// reads one key. Otherwise it reads the buyer's slots in every sale of the shard, a few hundred per round trip: 50 ms
// with 10,000 sales. One search runs at a time in each shard, so that requests for unknown orders cannot overload
// Redis.
func (f *Finder) FindOrder(ctx context.Context, buyer string, id sale.OrderID) (sale.Order, error) {
	shard := f.stock.cfg.Space.ShardOfOrder(id)
	if saleID, known := f.sales.Get(id); known {
		return f.findIn(ctx, shard, []string{saleID}, buyer, id)
	}
	select {
	case f.search[shard] <- struct{}{}:
		defer func() { <-f.search[shard] }()
	case <-ctx.Done():
		return sale.Order{}, unavailable("find order", ctx.Err())
	}
	ids, err := f.stock.SalesIn(ctx, shard)
	if err != nil {
		return sale.Order{}, err
	}
	result := notHeld(id)
	for some := range slices.Chunk(ids, salesPerRead) {
		o, err := f.findIn(ctx, shard, some, buyer, id)
		switch {
		case err == nil:
			f.Remember(id, o.SaleID)
			return o, nil
		case ConcernsOthers(err):
			return sale.Order{}, err
		case !errors.Is(err, sale.ErrNotFound): // a key of one sale is unusable
			result = err
		}
	}
	return sale.Order{}, result
}

// Remember caches the sale of an order for FindOrder. The cache can evict it.
func (f *Finder) Remember(id sale.OrderID, saleID string) { f.sales.Put(id, saleID) }

// findIn reads the buyer's slots in some sales of a shard, in one round trip.
func (f *Finder) findIn(
	ctx context.Context, shard keyspace.Shard, ids []string, buyer string, id sale.OrderID,
) (sale.Order, error) {
	slots := make([]*redis.StringCmd, len(ids))
	cmds, _ := f.stock.cfg.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, saleID := range ids {
			slots[i] = p.HGet(ctx, shard.Buyers(saleID), buyer)
		}
		return nil
	})
	for i, saleID := range ids {
		if slot := keyspace.Slots(slots[i].Val()).Find(id); slot > 0 {
			return sale.Order{ID: id, SaleID: saleID, Buyer: buyer, Slot: slot, Status: sale.StatusQueued}, nil
		}
	}
	if err := redisconn.PipelineError(cmds); err != nil {
		return sale.Order{}, unavailable("find order", err)
	}
	return sale.Order{}, notHeld(id)
}

// OrdersHeld returns the orders that the buyer holds in a sale, by slot, with the status queued: Redis does not know
// whether they are rows. A cancelled order is held until its unit is back. An unknown sale has none. An error wraps
// sale.ErrUnavailable.
func (f *Finder) OrdersHeld(ctx context.Context, buyer, saleID string) ([]sale.Order, error) {
	k, err := f.stock.Spread(ctx, saleID)
	if err != nil && !errors.Is(err, ErrNotLoaded) {
		return nil, err
	}
	home := spread.HomePart(saleID, buyer, k)
	text, err := f.stock.cfg.Client.HGet(ctx, f.stock.ShardOf(home).Buyers(saleID), buyer).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, unavailable("orders held in sale "+saleID, err)
	}
	var held []sale.Order
	for slot, id := range keyspace.Slots(text).All() {
		held = append(held, sale.Order{ID: id, SaleID: saleID, Buyer: buyer, Slot: slot, Status: sale.StatusQueued})
	}
	return held, nil
}

func notHeld(id sale.OrderID) error { return fmt.Errorf("order %s: %w", id, sale.ErrNotFound) }

// saleCacheSize bounds the cache to about 10 MB. Clients poll an order in the seconds before it is a row.
const saleCacheSize = 100_000
