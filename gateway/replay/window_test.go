package replay

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Lines are written when requests end. If none takes longer than the window, the entries are sorted by arrival.
func TestWindowSortsByArrival(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const span = 1000
		type request struct{ at, end int64 }
		var requests []request
		now := int64(0)
		for range rapid.IntRange(0, 200).Draw(t, "requests") {
			now += rapid.Int64Range(0, 300).Draw(t, "gap")
			requests = append(requests, request{now, now + rapid.Int64Range(0, span).Draw(t, "took")})
		}
		slices.SortStableFunc(requests, func(a, b request) int { return int(a.end - b.end) })
		w := window{span: span, capacity: 1 << 20}
		var got []entry
		emit := func(e entry) { got = append(got, e) }
		outOfOrder, newest := int64(0), int64(0)
		for i, r := range requests {
			if r.at < newest {
				outOfOrder++
			}
			newest = max(newest, r.at)
			w.add(entry{at: r.at, line: int64(i + 1)}, r.end, emit)
		}
		w.end(emit)
		if len(got) != len(requests) ||
			!slices.IsSortedFunc(got, func(a, b entry) int { return map[bool]int{true: -1, false: 1}[before(a, b)] }) {
			t.Fatalf("%v was emitted as %v", requests, got)
		}
		if w.late != 0 || w.outOfOrder != outOfOrder {
			t.Fatalf("%d late and %d out of order, want 0 and %d", w.late, w.outOfOrder, outOfOrder)
		}
	})
}

func TestWindowEmitsLateEntries(t *testing.T) {
	w := window{span: 1000, capacity: 1 << 20}
	var got []int64
	emit := func(e entry) { got = append(got, e.at) }
	for i, r := range [][2]int64{{5000, 5000}, {4500, 5500}, {7000, 7000}, {3000, 7001}, {6500, 7002}} {
		w.add(entry{at: r[0], line: int64(i)}, r[1], emit)
	}
	w.end(emit)
	if want := []int64{4500, 5000, 3000, 6500, 7000}; !slices.Equal(got, want) {
		t.Errorf("emitted %v, want %v", got, want)
	}
	if w.outOfOrder != 3 || w.late != 1 {
		t.Errorf("%d out of order and %d late, want 3 and 1", w.outOfOrder, w.late)
	}
}

func TestWindowCapacity(t *testing.T) {
	w := window{span: 1 << 40, capacity: 10}
	out := 0
	for i := range int64(1000) {
		w.add(entry{at: i, line: i}, i, func(entry) { out++ })
		if len(w.heap) > 10 || cap(w.heap) > 32 {
			t.Fatalf("%d entries in %d slots", len(w.heap), cap(w.heap))
		}
	}
	if out != 990 {
		t.Errorf("emitted %d, want 990", out)
	}
}

func TestSpreadDistributesTheRequestsOfASecond(t *testing.T) {
	s := spread{capacity: 100}
	var got []int64
	emit := func(e entry) { got = append(got, e.at) }
	for _, at := range []int64{1000, 1000, 1000, 1000, 2000, 4000, 4000} {
		s.add(entry{at: at, coarse: true}, emit)
	}
	s.add(entry{at: 5001}, emit)
	s.end(emit)
	if want := []int64{1000, 1250, 1500, 1750, 2000, 4000, 4500, 5001}; !slices.Equal(got, want) {
		t.Errorf("distributed to %v, want %v", got, want)
	}
}
