package assemble

import (
	"context"
	"sync"
	"time"

	"sluice/backend/queue"
	"sluice/backend/spread"
	"sluice/internal/loop"
)

const (
	// refillEvery is how often each backend moves units between the segments of open sales.
	refillEvery = 200 * time.Millisecond
	// noRefillEvery is how often each backend looks for open spread sales while there is none. Service.SpreadSales
	// returns a sale much longer than this before it opens. A purchase in an empty segment does not wait for this
	// interval.
	noRefillEvery = time.Second
	// settleEvery is how often each backend looks for sales that have ended and are not settled.
	settleEvery = 5 * time.Second
)

// refill moves units between the segments of sales, and completes unfinished moves of other processes, until ctx ends.
// It ignores errors of unavailable stores, which other metrics report; the next round retries.
func (b *Backend) refill(ctx context.Context) error {
	for ctx.Err() == nil {
		var running sync.WaitGroup
		wait := noRefillEvery
		for _, of := range b.Admin.SpreadSales(time.Now()) {
			wait = refillEvery
			running.Go(func() { _ = b.refillers.Of(of).RunOnce(ctx) })
		}
		running.Wait()
		loop.Tick(ctx, wait)
	}
	return nil
}

// settleEnded completes the transfers of ended sales, which refill ignores, until ctx ends. A backend that stops during
// a transfer completes it after its next start, if no other backend has.
func (b *Backend) settleEnded(ctx context.Context) error {
	settled := map[spread.Sale]int{}
	for range loop.Ticks(ctx, settleEvery) {
		settled = b.settleOnce(ctx, settled)
	}
	return nil
}

// settledPasses is the number of passes that must find nothing to settle in a sale. Another backend may detect the end
// of the sale later, and begin a transfer until then.
const settledPasses = 12

// settleOnce settles the ended sales that are not settled yet: settled has the number of consecutive passes per sale
// that found nothing to settle. It returns these numbers after this pass. As in refill, errors of unavailable stores
// are ignored.
func (b *Backend) settleOnce(ctx context.Context, settled map[spread.Sale]int) map[spread.Sale]int {
	now := map[spread.Sale]int{}
	for _, of := range b.Admin.EndedSpreadSales(time.Now()) {
		passes := settled[of]
		if passes < settledPasses {
			if done, _ := b.mover.Settled(ctx, of); done {
				passes++
			} else {
				passes = 0
			}
		}
		now[of] = passes
	}
	return now
}

// meterEvery is how often the pace of the queue is measured.
const meterEvery = 2 * time.Second

// measure updates the meters of the queue until ctx ends. They keep their values while Redis does not respond.
func (b *Backend) measure(ctx context.Context) error {
	for ctx.Err() == nil {
		b.measureOnce(ctx)
		loop.Tick(ctx, meterEvery)
	}
	return nil
}

func (b *Backend) measureOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, meterEvery)
	defer cancel()
	views, err := b.stock.List(ctx)
	if err != nil {
		return
	}
	b.sales.Set(views)
	shards, err := b.stores.shards.ByShard(ctx)
	if err != nil {
		return
	}
	accepted := make([]int64, len(shards))
	for _, v := range views {
		if len(v.Segments) == 0 {
			accepted[b.stores.space.ShardOf(v.ID)] += v.Accepted
		}
		for _, segment := range v.Segments {
			accepted[segment.Shard] += segment.Accepted
		}
	}
	all := queue.Sum(shards)
	down := all.Ready+all.Delayed+all.Leased > 0 && b.stores.db.Ping(ctx) != nil
	for i, one := range shards {
		if one == nil {
			continue
		}
		b.meters[i].Sample(time.Now(), accepted[i], *one)
		if down {
			b.meters[i].Stop()
		}
	}
}
