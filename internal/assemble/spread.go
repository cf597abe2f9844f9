package assemble

import (
	"context"
	"sync"
	"time"

	"sluice/backend/admission"
	"sluice/backend/spread"
	"sluice/internal/loop"
)

const (
	// refillEvery is how often each backend moves units between the segments of the sales that sell.
	refillEvery = 200 * time.Millisecond
	// noRefillEvery is how often each backend looks for such sales while there is none. It is much shorter than the time
	// before the opening at which Service.SpreadSales returns a sale, and a purchase of an empty segment does not wait
	// for it.
	noRefillEvery = time.Second
)

// newMover returns a Mover over the stores.
func (s *Stores) newMover() *spread.Mover {
	return spread.NewMover(admission.NewSegments(s.redis, s.space, s.guards.Deployment), s.tables)
}

// refill moves units between the segments of sales, and completes moves that another process left unfinished, until ctx
// ends. Errors are those of a store that is unavailable, which other metrics report; the next round retries.
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
