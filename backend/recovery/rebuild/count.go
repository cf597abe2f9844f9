package rebuild

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"sluice/backend/admission"
	"sluice/backend/recovery/journal"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// countSales decides for every order of every sale whether it holds a unit.
func (j *job) countSales(ctx context.Context) error {
	for _, c := range j.sales {
		j.status.total(int(c.sold) + len(c.queue))
	}
	return j.eachSale(ctx, j.count)
}

// Bounds of eachSale. The default pool of PostgreSQL has at least four connections, and heartbeats need one. The buyers
// of the orders that are counted concurrently are in memory.
const (
	concurrentSales  = 3
	concurrentOrders = 100_000 // a sale with more orders is counted alone
)

// eachSale calls do for all sales, for small ones concurrently: each costs several round trips.
func (j *job) eachSale(ctx context.Context, do func(context.Context, *saleCount) error) error {
	g, running := errgroup.WithContext(ctx)
	room := semaphore.NewWeighted(concurrentOrders)
	for _, c := range j.sales {
		orders := min(max(c.sold+int64(len(c.queue)), concurrentOrders/concurrentSales), concurrentOrders)
		if room.Acquire(running, orders) != nil {
			break // a call has failed, or ctx has ended
		}
		g.Go(func() error {
			defer room.Release(orders)
			return do(running, c)
		})
	}
	return cmp.Or(g.Wait(), ctx.Err())
}

// count counts rows first, then dead letters, the queue, and orders of which only the slot is left.
func (j *job) count(ctx context.Context, c *saleCount) error {
	accepted, err := j.client.HGet(ctx, j.shard.Sale(c.def.ID), "accepted").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return sale.Unavailable(err)
	}
	c.accepted = accepted
	parts := []func(context.Context, *saleCount) error{j.countRows, j.countLetters, j.countQueue, j.countSlots}
	for _, part := range parts {
		if err := part(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// countRows adds the orders of a sale in SQL. It reads the next rows while it adds the last ones.
func (j *job) countRows(ctx context.Context, c *saleCount) error {
	g, ctx := errgroup.WithContext(ctx)
	rows := make(chan sale.Order, readChunk)
	g.Go(func() error {
		defer close(rows)
		return j.cfg.Store.OrdersOf(ctx, c.part, func(o sale.Order) error {
			select {
			case rows <- o:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	for o := range rows {
		c.addRow(o)
		j.status.done(1)
	}
	return g.Wait()
}

// countLetters adds the dead letters. A letter holds no unit if its order is a row. The letter of a cancelled or
// dropped order is deleted, and so is a letter without a unit if its order is a row.
func (j *job) countLetters(ctx context.Context, c *saleCount) error {
	rows := map[sale.OrderID]sale.Status{}
	for part := range slices.Chunk(c.letters, readChunk) {
		ids := make([]sale.OrderID, len(part))
		for i, l := range part {
			ids[i] = l.order.ID
		}
		found, err := j.cfg.Store.Recorded(ctx, ids)
		if err != nil {
			return err
		}
		maps.Copy(rows, found)
	}
	for _, l := range c.letters {
		switch status, isRow := rows[l.order.ID]; {
		case isRow && status == sale.StatusCancelled, isRow && !l.backed:
			c.removed = append(c.removed, l.order.ID.String())
		case isRow:
		case l.backed:
			c.claim(l.order)
		default:
			c.seen(l.order)
		}
	}
	return nil
}

// countQueue adds the queued orders that are not rows.
func (j *job) countQueue(ctx context.Context, c *saleCount) error {
	slices.SortStableFunc(c.queue, func(x, y sale.Order) int { return cmp.Compare(x.Serial, y.Serial) })
	waiting := c.queue[:0]
	for part := range slices.Chunk(c.queue, readChunk) {
		missing, err := journal.NotRows(ctx, j.cfg.Store, part)
		if err != nil {
			return err
		}
		for _, o := range missing {
			if c.holds(o) {
				continue
			}
			if o, ok := c.claim(o); ok {
				waiting = append(waiting, o)
				if c.dead[o.ID] { // an earlier rebuild found no unit for it
					c.removed = append(c.removed, o.ID.String())
				}
			}
		}
		j.status.done(len(part))
	}
	c.queue = waiting
	return nil
}

// countSlots compares the slots in Redis with the count. An order that has a slot and nothing else is queued again.
func (j *job) countSlots(ctx context.Context, c *saleCount) error {
	var orphans []sale.Order
	found := map[string]keyspace.Slots{} // slots in Redis that differ from the count, by buyer
	key := j.shard.Buyers(c.def.ID)
	err := admission.ScanBuyers(ctx, j.client, key, func(buyer string, slots keyspace.Slots) {
		h := c.buyers[buyer]
		switch {
		case h != nil && h.slots == slots.WithoutRequests():
			h.seen = true
			return
		case h != nil || slots.Count() > 0:
			found[buyer] = slots
		}
		for slot, id := range slots.All() {
			if (h == nil || h.slots.Find(id) == 0) && slot <= sale.MaxPerBuyer {
				orphans = append(orphans, sale.Order{
					ID: id, SaleID: c.def.ID, Buyer: buyer, Slot: slot, Status: sale.StatusQueued,
				})
			}
		}
	})
	if err != nil {
		return err
	}
	slices.SortFunc(orphans, func(x, y sale.Order) int { return cmp.Compare(x.ID, y.ID) })
	orphans = slices.CompactFunc(orphans, func(x, y sale.Order) bool { return x.ID == y.ID })
	if orphans, err = journal.NotRows(ctx, j.cfg.Store, orphans); err != nil {
		return err
	}
	for _, o := range orphans {
		if _, dead := c.dead[o.ID]; !dead {
			c.addOrphan(o)
		}
	}
	return j.writeSlots(ctx, c, found)
}

// writeSlots corrects the slots of buyers. It keeps the requests that are stored with the slots found in Redis.
func (j *job) writeSlots(ctx context.Context, c *saleCount, found map[string]keyspace.Slots) error {
	for buyer := range found {
		if c.buyers[buyer] == nil {
			c.buyers[buyer] = &holding{}
		}
	}
	items := func(yield func([]any) bool) {
		for buyer, h := range c.buyers {
			if h.seen {
				continue
			}
			c.corrected++
			if !yield([]any{buyer, string(h.slots.WithRequestsOf(found[buyer]))}) {
				return
			}
		}
	}
	err := j.runAll(ctx, "slots", []string{j.shard.Guard(), j.shard.Buyers(c.def.ID)}, false, items)
	c.buyers = nil // frees the largest part of the memory of a rebuild
	return err
}

// writeLetters deletes the letters that the count has removed, and adds letters for orders without a unit or slot.
func (j *job) writeLetters(ctx context.Context) error {
	dead := j.shard.Dead()
	for _, c := range j.sales {
		var items [][]any
		for _, id := range c.removed {
			items = append(items, []any{id, "", ""})
		}
		for _, u := range c.unbacked {
			items = append(items,
				[]any{u.order.ID.String(), keyspace.EncodeMessage(u.order), "Redis lost data, and " + u.reason})
		}
		keys := []string{j.shard.Guard(), dead.Times(), dead.Letters(), dead.Index()}
		if err := j.runAll(ctx, "dead_letters", keys, false, slices.Values(items)); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) writeSale(ctx context.Context, c *saleCount) error {
	id := c.def.ID
	lastReturn, err := j.cfg.Store.LastReturn(ctx, id)
	if err != nil {
		return err
	}
	keys := []string{j.shard.Guard(), j.shard.Sale(id), j.shard.Stock(id), j.shard.Sales(), j.shard.Returns(id)}
	args := admission.SaleArgs(c.def, c.left, c.accepted, c.part, c.allocation, lastReturn, c.returned)
	return j.call(ctx, "sale", keys, args...)
}
