package admin

import (
	"context"
	"fmt"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// PauseWith tells the desk how Redis is made to hang for a while; without it nobody can. Call it before anything else.
func (d *Desk) PauseWith(pause func(ctx context.Context, span time.Duration) error) { d.pause = pause }

// PauseRedis makes Redis answer nobody for a while, in the middle of a rehearsal. It ends by itself, whatever dies. Errors: sale.ErrNotFound; a *RefusedError when the
// rehearsal is closed, when a real sale is open and beside is false, or when this Redis cannot be paused; *sale.InvalidError.
func (d *Desk) PauseRedis(ctx context.Context, actor, id string, span time.Duration, beside bool) error {
	if span < time.Millisecond || span > MaxPause {
		return &sale.InvalidError{Fields: []sale.FieldError{{Field: "for", Detail: "must be between 1ms and " + MaxPause.String()}}}
	}
	if err := d.mayFail(ctx, actor, id, "redis pauses for "+span.String(), span, beside); err != nil {
		return err
	}
	if d.pause == nil {
		return refused("This Redis cannot be paused from here.")
	}
	return d.pause(ctx, span)
}

// AbandonBatch plays a worker that takes up to so many orders and dies: they are leased, and nobody works on them until the lease is over and a watcher has given them
// back. orders is how many there were to take, perhaps none. Errors as of PauseRedis.
func (d *Desk) AbandonBatch(ctx context.Context, actor, id string, limit int, beside bool) (orders int, err error) {
	if limit < 1 || limit > MaxAbandoned {
		return 0, &sale.InvalidError{Fields: []sale.FieldError{{Field: "orders", Detail: fmt.Sprintf("must be between 1 and %d", MaxAbandoned)}}}
	}
	if err := d.mayFail(ctx, actor, id, fmt.Sprintf("a worker dies with up to %d orders", limit), 0, beside); err != nil {
		return 0, err
	}
	// Workers that are alive are quick: what comes is lain in wait for.
	over := time.NewTimer(lieInWait)
	defer over.Stop()
	for {
		b, _, err := d.shards[d.space.ShardOf(id)].Take(ctx, limit, "")
		if err != nil || len(b.Messages) > 0 {
			return len(b.Messages), err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-over.C:
			return 0, nil
		case <-time.After(lieInWait / 1000):
		}
	}
}

// lieInWait is how long a worker that is to die waits for something to die with.
const lieInWait = 2 * time.Second

// mayFail refuses a fault that real buyers would feel, and writes down one that is made.
func (d *Desk) mayFail(ctx context.Context, actor, id, what string, span time.Duration, beside bool) error {
	if !sale.IsRehearsal(id) {
		return notARehearsal()
	}
	now := time.Now()
	found, _, err := d.store.Sale(ctx, id)
	switch {
	case err != nil:
		return err
	case found.Switch == sale.Closed || !found.ClosesAt.After(now):
		return refused("The rehearsal is over.")
	case !beside:
		if err := d.noRealSale(ctx, now, now.Add(span)); err != nil {
			return err
		}
	}
	return d.store.Record(store.WithActor(ctx, actor), "rehearsal.fault", id, what)
}
