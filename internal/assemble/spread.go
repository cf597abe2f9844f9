package assemble

import (
	"context"
	"sync"
	"time"

	"sluice/backend/admission"
	"sluice/backend/spread"
)

// refillEvery is how often each backend moves units between the segments of the sales that sell.
const refillEvery = 200 * time.Millisecond

// newMover returns a Mover over the stores.
func (s *Stores) newMover() *spread.Mover {
	return spread.NewMover(admission.NewSegments(s.redis, s.space), s.segments)
}

// refill moves units between the segments of sales, and completes moves that another process left unfinished, until ctx
// ends. Errors are those of a store that is unavailable, which other metrics report; the next round retries.
func (b *Backend) refill(ctx context.Context) error {
	every(ctx, refillEvery, func() {
		var running sync.WaitGroup
		for _, of := range b.Admin.SpreadSales(time.Now()) {
			running.Go(func() { _ = b.refillers.Of(of).RunOnce(ctx) })
		}
		running.Wait()
	})
	return nil
}
