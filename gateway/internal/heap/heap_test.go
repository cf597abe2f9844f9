package heap

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestPopReturnsTheElementsInOrder(t *testing.T) {
	before := func(a, b int) bool { return a < b }
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOf(rapid.IntRange(0, 20)).Draw(t, "elements")
		var h Heap[int]
		for _, e := range all {
			h.Push(e, before)
		}
		if len(h) > 0 {
			all[slices.Index(all, h[0])] = 10 + h[0]
			h[0] += 10
			h.Down(0, before)
		}
		slices.Sort(all)
		for _, want := range all {
			if got := h.Pop(before); got != want {
				t.Fatalf("popped %d, want %d", got, want)
			}
		}
		if len(h) > 0 {
			t.Fatalf("%d elements are left", len(h))
		}
	})
}
