package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
)

// Load loads a sale from SQL into Redis: a new sale, or one that Redis lost. orders yields every order of the sale that
// holds a unit in SQL, then the cancelled orders whose rows do not have the number of their return: their units are
// part of the units left, which Load counts without them. Load adds the orders that are still queued. It does not
// change a sale that Redis holds, so it can run repeatedly and in several processes. Errors are those of orders, or
// wrap sale.ErrUnavailable.
//
// The last write makes the sale available. After a crash before it, the next Load starts over. Load adds only buyers
// that Redis does not have, so a slow Load cannot overwrite purchases that follow a faster one.
func (s *Stock) Load(ctx context.Context, def sale.Sale, orders func(yield func(sale.Order) error) error) error {
	return s.LoadAll(ctx, []sale.Sale{def}, func(_ string, yield func(sale.Order) error) error { return orders(yield) })
}

// loadChunk bounds the sales of one count. Its script blocks Redis for about 30 ms.
const loadChunk = 10_000

// LoadAll loads many sales. It reads the queue once for up to ten thousand sales. orders yields the orders of one sale.
// An error of one sale does not prevent the others from being loaded, unless ctx ends, or SQL or its shard is
// unavailable.
// LoadAll returns all errors, joined.
func (s *Stock) LoadAll(
	ctx context.Context, defs []sale.Sale, orders func(saleID string, yield func(sale.Order) error) error,
) error {
	byShard := map[keyspace.Shard][]sale.Sale{}
	for _, def := range defs {
		shard := s.space.ShardOf(def.ID)
		byShard[shard] = append(byShard[shard], def)
	}
	var failures []error
	for shard, all := range byShard {
		failures = append(failures, s.loadShard(ctx, shard, all, orders))
	}
	return errors.Join(failures...)
}

// loadShard is LoadAll for the sales of one shard.
func (s *Stock) loadShard(
	ctx context.Context, shard keyspace.Shard, defs []sale.Sale,
	orders func(saleID string, yield func(sale.Order) error) error,
) error {
	var failures []error
	for some := range slices.Chunk(defs, loadChunk) {
		ids := make([]string, len(some))
		for i, def := range some {
			ids[i] = def.ID
		}
		// Before SQL is read: an order that leaves the queue since then is a row.
		counts, err := s.CountShardUnits(ctx, shard, ids)
		if err != nil {
			return errors.Join(append(failures, err)...)
		}
		for _, def := range some {
			err := s.loadWithCount(ctx, def, counts[def.ID], func(yield func(sale.Order) error) error {
				return orders(def.ID, yield)
			})
			if err != nil {
				failures = append(failures, fmt.Errorf("load sale %s: %w", def.ID, err))
			}
			if errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil {
				return errors.Join(failures...)
			}
		}
	}
	return errors.Join(failures...)
}

// loadWithCount loads a sale, given the count of its queued orders.
func (s *Stock) loadWithCount(
	ctx context.Context, def sale.Sale, count *UnitCount, orders func(yield func(sale.Order) error) error,
) error {
	if count.Loaded {
		return nil
	}
	shard := s.space.ShardOf(def.ID)
	var accepted, held int64
	var newest sale.OrderID
	seen := map[sale.OrderID]bool{}
	buyers := map[string]keyspace.Slots{}
	var returned []any
	add := func(o sale.Order) {
		if seen[o.ID] {
			return
		}
		seen[o.ID] = true
		newest = max(newest, o.ID)
		accepted = max(accepted, o.Serial)
		if o.Status == sale.StatusCancelled {
			returned = append(returned, o.ID.String())
			return
		}
		held++
		slots := buyers[o.Buyer] // every unit needs a slot, because it is returned with its slot only
		buyers[o.Buyer] = slots.With(o.ID, slots.Empty(o.Slot))
	}
	if err := orders(func(o sale.Order) error { add(o); return nil }); err != nil {
		return err
	}
	count.InFlight(add)

	if err := s.addBuyers(ctx, shard.Buyers(def.ID), buyers); err != nil {
		return err
	}
	if newest > 0 {
		if err := newShardSequencer(s.client, s.space, shard, nil).skipPast(ctx, newest.Sequence()); err != nil {
			return err
		}
	}
	requireVerified := 0
	if s.requireVerified {
		requireVerified = 1
	}
	keys := []string{
		shard.Sale(def.ID), shard.Stock(def.ID), shard.Sales(), shard.Buyers(def.ID), shard.Returns(def.ID), shard.Guard(),
	}
	args := []any{def.Version, string(def.Switch), len(buyers), requireVerified}
	args = append(args, SaleArgs(def, def.Stock-held, accepted, Segment{}, returned)...)
	result, err := redisscript.Run(ctx, s.client, "load_sale", keys, args...).Text()
	switch {
	case err == nil && result == "lost":
		err = errors.New("the data in Redis was lost while the buyers were stored")
	case err == nil && result == "unverified":
		err = errors.New("the data in Redis is not verified")
	}
	if err != nil {
		return unavailable("run load_sale.lua", err)
	}
	return nil
}

// addBuyers stores buyers that the hash key does not have.
func (s *Stock) addBuyers(ctx context.Context, key string, buyers map[string]keyspace.Slots) error {
	const chunk = 1000
	pipe := s.client.Pipeline()
	flush := func() error {
		if _, err := pipe.Exec(ctx); err != nil {
			return unavailable("store buyers", err)
		}
		return nil
	}
	for buyer, slots := range buyers {
		pipe.HSetNX(ctx, key, buyer, string(slots))
		if pipe.Len() == chunk {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
