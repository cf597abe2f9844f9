package loop

import (
	"errors"
	"sync/atomic"
	"testing"
)

func TestEachReturnsTheErrorsByItemWithinItsLimit(t *testing.T) {
	odd := errors.New("odd")
	for _, limit := range []int{1, 3, -1} {
		var running, most atomic.Int64
		items := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
		errs := Each(items, limit, func(i, item int) error {
			now := running.Add(1)
			defer running.Add(-1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			if i != item {
				t.Errorf("item %d has the index %d", item, i)
			}
			if item%2 == 1 {
				return odd
			}
			return nil
		})
		for i, err := range errs {
			if (err != nil) != (i%2 == 1) {
				t.Errorf("item %d: %v", i, err)
			}
		}
		if len(errs) != len(items) || limit > 0 && most.Load() > int64(limit) {
			t.Errorf("limit %d: %d errors, %d calls at a time", limit, len(errs), most.Load())
		}
	}
	if errs := Each([]int(nil), -1, func(int, int) error { return odd }); len(errs) != 0 {
		t.Errorf("no items: %v", errs)
	}
}
