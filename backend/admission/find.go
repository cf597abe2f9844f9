package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// FindOrder finds an order that this buyer holds and that may not be a row yet. Only Redis is asked. It returns sale.ErrNotFound, or wraps
// sale.ErrUnavailable.
//
// Nothing is stored in Redis per order for this. An order that was remembered, or found before, costs one question. For any other, the buyer's places in every
// loaded sale are looked at, a few hundred at once: 50 ms with 10,000 sales. One such search goes on at a time, so that asking for orders that do not exist is no way to keep Redis busy.
func (s *Stock) FindOrder(ctx context.Context, buyer string, id sale.OrderID) (sale.Order, error) {
	if saleID := s.saleOf.get(id); saleID != "" {
		return s.findIn(ctx, s.space.ShardOf(saleID), []string{saleID}, buyer, id)
	}
	select {
	case s.search <- struct{}{}:
		defer func() { <-s.search }()
	case <-ctx.Done():
		return sale.Order{}, unavailable("find order", ctx.Err())
	}
	for _, shard := range s.space.All() {
		ids, err := s.client.SMembers(ctx, shard.Sales()).Result()
		if err != nil {
			return sale.Order{}, unavailable("find order", err)
		}
		for some := range slices.Chunk(ids, salesPerRead) {
			o, err := s.findIn(ctx, shard, some, buyer, id)
			if err == nil {
				s.Remember(id, o.SaleID)
			}
			if err == nil || !errors.Is(err, sale.ErrNotFound) {
				return o, err
			}
		}
	}
	return sale.Order{}, notHeld(id)
}

// Remember tells of which sale an order is, for FindOrder; whoever has accepted it knows. It may be forgotten again.
func (s *Stock) Remember(id sale.OrderID, saleID string) { s.saleOf.put(id, saleID) }

// findIn looks at the buyer's places in some sales of a shard, in one round trip.
func (s *Stock) findIn(ctx context.Context, shard keyspace.Shard, ids []string, buyer string, id sale.OrderID) (sale.Order, error) {
	held := make([]*redis.StringCmd, len(ids))
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, saleID := range ids {
			held[i] = p.HGet(ctx, shard.Buyers(saleID), buyer)
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return sale.Order{}, unavailable("find order", err)
	}
	for i, saleID := range ids {
		if nth := placeOf(held[i].Val(), id.String()); nth > 0 {
			return sale.Order{ID: id, SaleID: saleID, Buyer: buyer, Slot: nth, Status: sale.StatusQueued}, nil
		}
	}
	return sale.Order{}, notHeld(id)
}

func notHeld(id sale.OrderID) error { return fmt.Errorf("order %s: %w", id, sale.ErrNotFound) }

// rememberedOrders bounds what a process remembers: some 10 MB. An order is asked for in the seconds before it is a row.
const saleCacheSize = 100_000

// whereabouts remembers of which sale orders are: the last ones of some number, and up to as many before them. It is safe for concurrent use.
type saleCache struct {
	mu            sync.Mutex
	size          int
	recent, older map[sale.OrderID]string
}

func newSaleCache(most int) *saleCache {
	return &saleCache{size: most, recent: map[sale.OrderID]string{}}
}

func (w *saleCache) put(id sale.OrderID, saleID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.recent) >= w.size {
		w.older, w.recent = w.recent, make(map[sale.OrderID]string)
	}
	w.recent[id] = saleID
}

// of is empty for an order that is not remembered.
func (w *saleCache) get(id sale.OrderID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if saleID, ok := w.recent[id]; ok {
		return saleID
	}
	return w.older[id]
}
