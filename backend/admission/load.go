package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	redisscript "sluice/lua/redis"
)

// Load loads a sale from SQL into Redis: a new sale, or one that Redis lost. orders yields every order of a part of the
// sale that holds a unit in SQL, then the cancelled orders with a row that lacks the number of their return. Load
// counts the units of these cancelled orders as left. It adds the orders that are still queued. It does not change a
// part that Redis holds, so it can run repeatedly and in several processes. Errors are those of orders, or wrap
// sale.ErrUnavailable.
//
// The last write makes a part available. After a crash before it, the next Load starts over. A slow Load stores nothing
// after a faster one has ended, so it neither overwrites purchases nor restores orders that were cancelled since.
func (s *Stock) Load(ctx context.Context, def sale.Sale, orders OrdersOf) error {
	return s.LoadAll(ctx, PartsOf(def), orders)
}

// OrdersOf reads the orders of a part of a sale in SQL (store.Store.OrdersOf).
type OrdersOf func(ctx context.Context, of spread.Part, yield func(sale.Order) error) error

// loadChunk bounds the sales of one count. Its script blocks Redis for about 30 ms.
const loadChunk = 10_000

// LoadAll loads parts of many sales. It reads the queue of a shard once for up to ten thousand sales. After an error of
// one sale it continues with the others. If SQL or a shard is unavailable, or ctx ends, it skips the other sales of
// that shard. LoadAll returns all errors, joined.
func (s *Stock) LoadAll(ctx context.Context, parts []SalePart, orders OrdersOf) error {
	byShard := map[keyspace.Shard][]SalePart{}
	for _, p := range parts {
		s.LearnSpread(p.Sale)
		shard := s.ShardOf(p.Part())
		byShard[shard] = append(byShard[shard], p)
	}
	var failures []error
	for _, shard := range slices.Sorted(maps.Keys(byShard)) {
		failures = append(failures, s.loadShard(ctx, shard, byShard[shard], orders))
	}
	return errors.Join(failures...)
}

// loadShard is LoadAll for the parts in one shard.
func (s *Stock) loadShard(ctx context.Context, shard keyspace.Shard, parts []SalePart, orders OrdersOf) error {
	var failures []error
	for some := range slices.Chunk(parts, loadChunk) {
		ids := make([]string, len(some))
		for i, p := range some {
			ids[i] = p.ID
		}
		// Before SQL is read: an order that leaves the queue since then is a row.
		counts, err := s.CountShardUnits(ctx, shard, ids)
		failures = append(failures, err)
		if ConcernsOthers(err) {
			return errors.Join(failures...)
		}
		for _, p := range some {
			if counts[p.ID] == nil {
				continue // the error of CountShardUnits names the sale
			}
			if err := s.loadWithCount(ctx, p, counts[p.ID], orders); err != nil {
				failures = append(failures, fmt.Errorf("load sale %s: %w", p.ID, err))
				if ConcernsOthers(err) || ctx.Err() != nil {
					return errors.Join(failures...)
				}
			}
		}
	}
	return errors.Join(failures...)
}

// claim claims the allocation of a part, and returns its units and its version. For a sale in one shard, it returns the
// stock without a claim. The claim must precede the reading of the rows. After it, a transfer that Redis began before
// it lost the segment can no longer be committed.
func (s *Stock) claim(ctx context.Context, p SalePart) (spread.Allocation, error) {
	if p.Spread < 2 {
		return spread.Allocation{Units: p.Stock}, nil
	}
	return s.cfg.Claimer.Claim(ctx, p.ID, p.Segment)
}

// loadWithCount loads a part, given the count of its queued orders.
func (s *Stock) loadWithCount(ctx context.Context, def SalePart, count *UnitCount, orders OrdersOf) error {
	if count.Loaded {
		return nil
	}
	part := def.Part()
	shard := s.ShardOf(part)
	claimed, err := s.claim(ctx, def)
	if err != nil {
		return err
	}
	def.Stock = claimed.Units
	all := partOrders{base: part.Base(), seen: map[sale.OrderID]bool{}, buyers: map[string]keyspace.Slots{}}
	if err := orders(ctx, part, func(o sale.Order) error { all.add(o); return nil }); err != nil {
		return err
	}
	count.InFlight(all.add)

	if err := s.addBuyers(ctx, shard, def.ID, all.buyers); err != nil {
		return err
	}
	if all.newest > 0 {
		if err := skipPast(ctx, s.cfg.Client, s.cfg.Space, shard, all.newest.Sequence()); err != nil {
			return err
		}
	}
	keys := []string{
		shard.Sale(def.ID), shard.Stock(def.ID), shard.Sales(), shard.Buyers(def.ID), shard.Returns(def.ID), shard.Guard(),
	}
	args := []any{def.Version, string(def.Switch), len(all.buyers), s.cfg.Deployment.owner()}
	const lastReturn = 0 // the sale is new, because a shard that has lost sales is rebuilt
	left := claimed.Units - all.held
	args = append(args, SaleArgs(def.Sale, left, all.accepted, part, claimed.Version, lastReturn, all.returned)...)
	result, err := redisscript.Run(ctx, s.cfg.Client, "load_sale", keys, args...).Text()
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

// partOrders collects the orders of a part of a sale from SQL and the queue.
type partOrders struct {
	base           int64 // of the part
	accepted, held int64 // number of orders ever accepted, and of those that hold a unit
	newest         sale.OrderID
	buyers         map[string]keyspace.Slots
	returned       []any // ids of cancelled orders
	seen           map[sale.OrderID]bool
}

// add adds an order, once.
func (all *partOrders) add(o sale.Order) {
	if all.seen[o.ID] {
		return
	}
	all.seen[o.ID] = true
	all.newest = max(all.newest, o.ID)
	all.accepted = max(all.accepted, o.Serial-all.base)
	if o.Status == sale.StatusCancelled {
		all.returned = append(all.returned, o.ID.String())
		return
	}
	all.held++
	slots := all.buyers[o.Buyer] // every unit needs a slot, because it is returned with its slot only
	all.buyers[o.Buyer] = slots.With(o.ID, slots.Empty(o.Slot))
}

// addBuyers stores the buyers of a sale that Redis does not have.
func (s *Stock) addBuyers(
	ctx context.Context, shard keyspace.Shard, saleID string, buyers map[string]keyspace.Slots,
) error {
	const chunk = 1000
	for some := range slices.Chunk(slices.Collect(maps.Keys(buyers)), chunk) {
		args := append(make([]any, 0, 1+2*len(some)), s.cfg.Deployment.owner())
		for _, buyer := range some {
			args = append(args, buyer, string(buyers[buyer]))
		}
		keys := []string{shard.Buyers(saleID), shard.Guard(), shard.Sale(saleID), shard.Stock(saleID)}
		if err := redisscript.Run(ctx, s.cfg.Client, "load_buyers", keys, args...).Err(); err != nil {
			return unavailable("run load_buyers.lua", err)
		}
	}
	return nil
}
