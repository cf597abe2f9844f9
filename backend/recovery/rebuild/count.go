package rebuild

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// countSales decides about every order of every sale: rows first, then dead letters, then the queue, then what is only a buyer's place.
func (j *job) countSales(ctx context.Context) error {
	for _, a := range j.sales {
		j.status.total(int(a.sold) + len(a.queue))
	}
	for _, a := range j.sales {
		if err := j.count(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) count(ctx context.Context, a *saleCount) error {
	accepted, err := j.client.HGet(ctx, a.shard.Sale(a.def.ID), "accepted").Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return unavailable(err)
	}
	a.accepted = accepted
	if err := j.rows(ctx, a.def.ID, func(o sale.Order) { a.row(o) }); err != nil {
		return err
	}
	if err := j.countLetters(ctx, a); err != nil {
		return err
	}
	if err := j.countQueue(ctx, a); err != nil {
		return err
	}
	return j.countSlots(ctx, a)
}

// rows calls each for the orders of a sale in SQL, and reads on meanwhile.
func (j *job) rows(ctx context.Context, saleID string, each func(sale.Order)) error {
	g, ctx := errgroup.WithContext(ctx)
	parts := make(chan []sale.Order, 2)
	g.Go(func() error {
		defer close(parts)
		part := make([]sale.Order, 0, readChunk)
		send := func() error {
			select {
			case parts <- part:
				part = make([]sale.Order, 0, readChunk)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		err := j.store.OrdersOf(ctx, saleID, func(o sale.Order) error {
			if part = append(part, o); len(part) < readChunk {
				return nil
			}
			return send()
		})
		if err != nil {
			return err
		}
		return send()
	})
	for part := range parts {
		for _, o := range part {
			each(o)
		}
		j.status.done(len(part))
	}
	return g.Wait()
}

// countLetters: a letter whose order is a row holds nothing, and one whose order was cancelled is settled.
func (j *job) countLetters(ctx context.Context, a *saleCount) error {
	orders := make([]sale.Order, len(a.letters))
	for i, l := range a.letters {
		orders[i] = l.order
	}
	rows, err := j.statuses(ctx, orders)
	if err != nil {
		return err
	}
	for _, l := range a.letters {
		switch status, isRow := rows[l.order.ID]; {
		case isRow && status == sale.StatusCancelled, isRow && !l.backed:
			a.removed = append(a.removed, l.order.ID.String())
		case isRow:
		case l.backed:
			a.claim(l.order)
		default:
			a.seen(l.order)
		}
	}
	return nil
}

// countQueue: what is a row has arrived, cancelled or not.
func (j *job) countQueue(ctx context.Context, a *saleCount) error {
	slices.SortStableFunc(a.queue, func(x, y sale.Order) int { return int(min(max(x.Serial-y.Serial, -1), 1)) })
	waiting := a.queue[:0]
	for part := range slices.Chunk(a.queue, readChunk) {
		rows, err := j.statuses(ctx, part)
		if err != nil {
			return err
		}
		for _, o := range part {
			if _, isRow := rows[o.ID]; isRow || a.knows(o) {
				continue
			}
			if o, ok := a.claim(o); ok {
				waiting = append(waiting, o)
				if a.dead[o.ID] { // an earlier attempt, which died, had found no unit for it
					a.removed = append(a.removed, o.ID.String())
				}
			}
		}
		j.status.done(len(part))
	}
	a.queue = waiting
	return nil
}

// countPlaces looks at what Redis believes that buyers hold. A place with an order that is nowhere else is all that is left of it.
func (j *job) countSlots(ctx context.Context, a *saleCount) error {
	var orphans []sale.Order
	wrong := map[string]bool{} // buyers who hold nothing any more
	err := admission.ScanBuyers(ctx, j.client, a.shard.Buyers(a.def.ID), func(buyer, held string) {
		h := a.slots[buyer]
		if h != nil && h.held == held {
			h.seen = true
			return
		}
		if h == nil && strings.Trim(held, ",") != "" {
			wrong[buyer] = true
		}
		for nth, id := range admission.PlacesIn(held) {
			if (h == nil || h.place(id.String()) == 0) && nth <= sale.MaxPerBuyer {
				orphans = append(orphans, sale.Order{ID: id, SaleID: a.def.ID, Buyer: buyer, Slot: nth, Status: sale.StatusQueued})
			}
		}
	})
	if err != nil {
		return err
	}
	slices.SortFunc(orphans, func(x, y sale.Order) int { return int(min(max(x.ID-y.ID, -1), 1)) })
	orphans = slices.CompactFunc(orphans, func(x, y sale.Order) bool { return x.ID == y.ID })
	for part := range slices.Chunk(orphans, readChunk) {
		rows, err := j.statuses(ctx, part)
		if err != nil {
			return err
		}
		for _, o := range part {
			_, isRow := rows[o.ID]
			if _, dead := a.dead[o.ID]; !isRow && !dead {
				a.orphan(o)
			}
		}
	}
	return j.writeSlots(ctx, a, wrong)
}

func (j *job) writeSlots(ctx context.Context, a *saleCount, wrong map[string]bool) error {
	w := j.writer(ctx, "slots", []string{a.shard.Guard(), a.shard.Buyers(a.def.ID)}, 2)
	for buyer := range wrong {
		if a.slots[buyer] == nil {
			a.corrected++
			if err := w.add(buyer, ""); err != nil {
				return err
			}
		}
	}
	for buyer, h := range a.slots {
		if !h.seen {
			a.corrected++
			if err := w.add(buyer, h.held); err != nil {
				return err
			}
		}
	}
	a.slots = nil // the largest part of what a rebuild keeps in memory
	return w.flush()
}

func (j *job) statuses(ctx context.Context, orders []sale.Order) (map[sale.OrderID]sale.Status, error) {
	rows := map[sale.OrderID]sale.Status{}
	for part := range slices.Chunk(orders, readChunk) {
		ids := make([]sale.OrderID, len(part))
		for i, o := range part {
			ids[i] = o.ID
		}
		found, err := j.store.Statuses(ctx, ids)
		if err != nil {
			return nil, err
		}
		for id, status := range found {
			rows[id] = status
		}
	}
	return rows, nil
}

// writeLetters lets a person see the orders for which there is nothing left.
func (j *job) writeLetters(ctx context.Context) error {
	for _, a := range j.sales {
		w := j.writer(ctx, "dead_letters", []string{a.shard.Guard(), a.shard.Dead(), a.shard.DeadLetters(), a.shard.DeadIndex()}, 3)
		for _, id := range a.removed {
			if err := w.add(id, "", ""); err != nil {
				return err
			}
		}
		for _, u := range a.unbacked {
			if err := w.add(u.order.ID.String(), keyspace.EncodeMessage(u.order), "Redis lost data, and "+u.why); err != nil {
				return err
			}
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) writeSales(ctx context.Context) error {
	for _, a := range j.sales {
		d := a.def
		keys := []string{a.shard.Guard(), a.shard.Sale(d.ID), a.shard.Stock(d.ID), a.shard.Sales(), a.shard.Returns(d.ID)}
		if err := j.call(ctx, "sale", keys, admission.SaleArgs(d, a.left, a.accepted, a.returned)...); err != nil {
			return err
		}
	}
	return nil
}
