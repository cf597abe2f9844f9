package api

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/admission"
)

// slowStock delays View.
type slowStock struct {
	*world
	took time.Duration
}

func (s slowStock) View(ctx context.Context, id string) (admission.View, error) {
	<-time.After(s.took)
	return s.world.View(ctx, id)
}

func TestConcurrentReadsShareOneQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		shared := &coalescedReads{Stock: slowStock{w, time.Millisecond}}
		var readers sync.WaitGroup
		for range 1000 {
			readers.Go(func() {
				if v, err := shared.View(t.Context(), "drop"); err != nil || v.Left != 42 {
					t.Errorf("%d, %v", v.Left, err)
				}
			})
		}
		readers.Wait()
		if w.views != 1 {
			t.Errorf("%d queries", w.views)
		}
		if _, err := shared.View(t.Context(), "drop"); err != nil || w.views != 2 {
			t.Errorf("a later read: %d queries, %v", w.views, err)
		}
	})
}
