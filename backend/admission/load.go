package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// Load makes a sale known to Redis: a new one, or one that Redis lost. orders yields every order of the sale that holds a unit in SQL, and after them the
// cancelled ones whose rows do not know that their unit is back: it is, since what is left is counted anew without them.
// Orders still in the queue are counted too, each once. A sale that Redis holds is left alone, so Load may run twice, or in two processes at once.
// Errors wrap sale.ErrUnavailable, or are those of orders.
//
// The sale becomes buyable with the last write; a crash before leaves it unknown, and the next Load begins again. Buyers are added
// only where none stands, so a slower Load cannot overwrite what was bought after a faster one.
func (s *Stock) Load(ctx context.Context, def sale.Sale, orders func(yield func(sale.Order) error) error) error {
	census, err := s.CountUnits(ctx, def.ID) // before SQL is read: an order that leaves the queue meanwhile is a row then
	if err != nil {
		return err
	}
	return s.loadWithCount(ctx, def, &census, orders)
}

// loadChunk is how many sales are counted by one look into the queue; it bounds for how long the look's script holds up Redis, by some 30 ms.
const loadChunk = 10_000

// LoadAll is Load for many sales: the queue is looked at once for ten thousand of them, and not once for each. orders yields those of one sale. A sale that
// fails keeps no other from being loaded, unless ctx ends or a store is away; the errors are joined.
func (s *Stock) LoadAll(ctx context.Context, defs []sale.Sale, orders func(saleID string, yield func(sale.Order) error) error) error {
	var failures []error
	for shard, all := range s.byShard(defs) {
		for some := range slices.Chunk(all, loadChunk) {
			ids := make([]string, len(some))
			for i, def := range some {
				ids[i] = def.ID
			}
			censuses, err := s.CountShardUnits(ctx, shard, ids)
			if err != nil {
				return errors.Join(append(failures, err)...)
			}
			for _, def := range some {
				err := s.loadWithCount(ctx, def, censuses[def.ID], func(yield func(sale.Order) error) error { return orders(def.ID, yield) })
				if err != nil {
					failures = append(failures, fmt.Errorf("load sale %s: %w", def.ID, err))
				}
				if errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil {
					return errors.Join(failures...)
				}
			}
		}
	}
	return errors.Join(failures...)
}

func (s *Stock) byShard(defs []sale.Sale) map[keyspace.Shard][]sale.Sale {
	shards := map[keyspace.Shard][]sale.Sale{}
	for _, def := range defs {
		shard := s.space.ShardOf(def.ID)
		shards[shard] = append(shards[shard], def)
	}
	return shards
}

// loadCounted finishes what a census has begun.
func (s *Stock) loadWithCount(ctx context.Context, def sale.Sale, census *UnitCount, orders func(yield func(sale.Order) error) error) error {
	if census.Loaded {
		return nil
	}
	shard := s.space.ShardOf(def.ID)
	var accepted, held int64
	var newest sale.OrderID
	seen := map[sale.OrderID]bool{}
	buyers := map[string]string{}
	var given []any
	add := func(o sale.Order) {
		if seen[o.ID] {
			return
		}
		seen[o.ID] = true
		newest = max(newest, o.ID)
		accepted = max(accepted, o.Serial)
		if o.Status == sale.StatusCancelled {
			given = append(given, o.ID.String())
			return
		}
		held++
		buyers[o.Buyer] = withPlace(buyers[o.Buyer], o.ID.String(), o.Slot) // every unit that is out has a place: only with it does it come back
	}
	if err := orders(func(o sale.Order) error { add(o); return nil }); err != nil {
		return err
	}
	census.InFlight(func(m keyspace.Message) { add(m) })

	if err := s.putBuyers(ctx, shard.Buyers(def.ID), buyers); err != nil {
		return err
	}
	if newest > 0 {
		ids := NewSequencer(s.client, s.space, nil)
		if err := ids.skipPast(ctx, newest.Sequence()); err != nil {
			return err
		}
	}
	keys := []string{shard.Sale(def.ID), shard.Stock(def.ID), shard.Sales(), shard.Buyers(def.ID), shard.Returns(def.ID), shard.Guard()}
	args := append([]any{def.Version, string(def.Switch), len(buyers), s.onlyVerified}, SaleArgs(def, def.Stock-held, accepted, given)...)
	answer, err := s.load.Run(ctx, s.client, keys, args...).Text()
	switch {
	case err == nil && answer == "lost":
		err = errors.New("its buyers vanished meanwhile: Redis was emptied")
	case err == nil && answer == "unverified":
		err = errors.New("the data in Redis is not verified")
	}
	if err != nil {
		return unavailable("load "+def.ID, err)
	}
	return nil
}

func (s *Stock) putBuyers(ctx context.Context, key string, buyers map[string]string) error {
	const chunk = 1000
	pipe := s.client.Pipeline()
	flush := func() error {
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return unavailable("load buyers", err)
		}
		return nil
	}
	for buyer, held := range buyers {
		pipe.HSetNX(ctx, key, buyer, held)
		if pipe.Len() == chunk {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
