package store_test

import (
	"testing"

	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

func TestOnChangeIsCalledAfterEachChange(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		var calls int
		e.Store = storetest.OpenConfig(t, e.url, store.Config{OnChange: func() { calls++ }})
		e.createHold(t, "h", 100)
		o, p, q := storetest.Order("h", "ann"), storetest.Order("h", "bob"), storetest.Order("h", "eve")
		for i, c := range []struct {
			do   func()
			want int
		}{
			{func() { e.write(t, o, p, q) }, 1},
			{func() { e.write(t, o) }, 1},
			{func() { e.pay(t, o, "r") }, 2},
			{func() { _, _, _ = e.CancelOrder(e.ctx, p.ID) }, 3},
			{func() { _, _, _ = e.CancelOrder(e.ctx, p.ID) }, 3},
			{func() { _, _ = e.CancelOverdue(e.ctx, 10) }, 3},
			{func() { storetest.Elapse(t, e.url, q); _, _ = e.CancelOverdue(e.ctx, 10) }, 4},
			{func() { _, _ = e.CancelDead(e.ctx, store.DeadOrder{Order: storetest.Order("h", "dead")}) }, 5},
		} {
			if c.do(); calls != c.want {
				t.Errorf("after step %d: %d calls, want %d", i+1, calls, c.want)
			}
		}
	})
}
