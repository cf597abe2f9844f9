package chaos

import (
	"slices"
	"testing"
	"time"
)

// honest is a small shop in which all is well: ann's order is a row, bob's answer was lost and only Redis knows of
// it, cid's row was cancelled, dot's order is dead.
func honest() (*History, *Books) {
	h := NewHistory()
	h.offer("s", Offer{Stock: 8, PerBuyer: 1})
	h.restocked("s", 2)
	in := func(buyer string) Place { return Place{"s", buyer} }
	for _, buyer := range []string{"ann", "bob", "cid", "dot", "eve"} {
		h.asks(in(buyer))
	}
	for id, buyer := range map[string]string{"1": "ann", "3": "cid", "4": "dot"} {
		h.answered(Request{in(buyer), "first"}, answer{status: 202, OrderID: id})
	}
	h.cancels("3")
	return h, &Books{
		Sales: map[string]Shelf{"s": {Stock: 10, Sold: 2, Left: 7}},
		Rows: []Row{
			{ID: "1", Place: in("ann")},
			{ID: "2", Place: in("bob")},
			{ID: "3", Place: in("cid"), Cancelled: true},
		},
		Letters: []Letter{{ID: "4", Place: in("dot")}},
		Holders: map[Place][]string{in("ann"): {"1"}, in("bob"): {"2"}, in("cid"): nil, in("dot"): {"4"}},
		Audits:  map[string]bool{"s": true},
	}
}

func TestCheckAcceptsAConsistentHistory(t *testing.T) {
	if v := Check(honest()); len(v.Violations()) > 0 {
		t.Errorf("%q", v.Violations())
	}
}

func TestCheckFindsEachViolation(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(h *History, b *Books)
		found func(v Verdict) []string
	}{
		"a row removed": {func(_ *History, b *Books) { b.Rows = b.Rows[1:] }, func(v Verdict) []string { return v.Lost }},
		"a dead letter removed": {func(_ *History, b *Books) {
			b.Letters = nil
		}, func(v Verdict) []string { return v.Lost }},
		"a row of another buyer": {func(_ *History, b *Books) {
			b.Rows[0].Place.Buyer = "bob"
		}, func(v Verdict) []string { return v.Lost }},
		"an order doubled": {func(_ *History, b *Books) {
			b.Rows = append(b.Rows, Row{ID: "9", Place: b.Rows[0].Place})
		}, func(v Verdict) []string { return v.Twice }},
		"a row doubled": {
			func(_ *History, b *Books) { b.Rows = append(b.Rows, b.Rows[0]) }, func(v Verdict) []string { return v.Twice },
		},
		"a dead order beside a row": {func(_ *History, b *Books) {
			b.Letters = append(b.Letters, Letter{ID: "9", Place: b.Rows[0].Place})
		}, func(v Verdict) []string { return v.Twice }},
		"a row that nothing records": {func(_ *History, b *Books) {
			b.Holders[b.Rows[1].Place] = nil
		}, func(v Verdict) []string { return v.Uncalled }},
		"a row without a purchase": {func(_ *History, b *Books) {
			p := Place{"s", "zoe"}
			b.Rows, b.Holders[p] = append(b.Rows, Row{ID: "9", Place: p}), []string{"9"}
		}, func(v Verdict) []string { return v.Uncalled }},
		"a unit too many in Redis": {func(_ *History, b *Books) {
			b.Sales["s"] = Shelf{Stock: 10, Sold: 2, Left: 8}
		}, func(v Verdict) []string { return v.Units }},
		"a unit too few in Redis": {func(_ *History, b *Books) {
			b.Sales["s"] = Shelf{Stock: 10, Sold: 2, Left: 6}
		}, func(v Verdict) []string { return v.Units }},
		"a restock lost": {func(_ *History, b *Books) {
			b.Sales["s"] = Shelf{Stock: 8, Sold: 2, Left: 5}
		}, func(v Verdict) []string { return v.Units }},
		"sold miscounted": {func(_ *History, b *Books) {
			b.Sales["s"] = Shelf{Stock: 10, Sold: 3, Left: 7}
		}, func(v Verdict) []string { return v.Units }},
		"oversold": {func(_ *History, b *Books) {
			b.Sales["s"] = Shelf{Stock: 10, Sold: 2, Left: -1}
		}, func(v Verdict) []string { return v.Units }},
		"an accepted order without a unit": {func(_ *History, b *Books) {
			b.Letters[0].Unbacked = true
		}, func(v Verdict) []string { return v.Units }},
		"a message left over": {
			func(_ *History, b *Books) { b.Queue = []string{"5 s 1 5 eve"} }, func(v Verdict) []string { return v.Unfinished },
		},
		"a unit that is not back": {
			func(_ *History, b *Books) { b.Rows[2].Returning = true }, func(v Verdict) []string { return v.Unfinished },
		},
		"a cancel without a request": {
			func(h *History, _ *Books) { clear(h.Cancel) }, func(v Verdict) []string { return v.Contrary },
		},
		"a holder without an order": {
			func(_ *History, b *Books) { b.Holders[Place{"s", "eve"}] = []string{"7"} },
			func(v Verdict) []string { return v.Contrary },
		},
		"an audit out of balance": {
			func(_ *History, b *Books) { clear(b.Audits) }, func(v Verdict) []string { return v.Contrary },
		},
		"a sale that paused itself": {
			func(_ *History, b *Books) { b.Paused = []string{"audit pause s"} }, func(v Verdict) []string { return v.Contrary },
		},
		"one key, two orders": {func(h *History, _ *Books) {
			h.answered(Request{Place{"s", "ann"}, "first"}, answer{status: 202, OrderID: "2"})
		}, func(v Verdict) []string { return v.Contrary }},
		"one order confirmed to two buyers": {func(h *History, _ *Books) {
			h.answered(Request{Place{"s", "eve"}, "first"}, answer{status: 202, OrderID: "1"})
		}, func(v Verdict) []string { return v.Contrary }},
		"already bought, and no row": {func(h *History, _ *Books) {
			h.answered(Request{Place{"s", "eve"}, "x"}, answer{status: 409, OrderID: "8", Code: "already-bought"})
		}, func(v Verdict) []string { return v.Lost }},
		"a sale that SQL knows not of": {
			func(_ *History, b *Books) { delete(b.Sales, "s") }, func(v Verdict) []string { return v.Units },
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, b := honest()
			c.spoil(h, b)
			if v := Check(h, b); len(c.found(v)) == 0 {
				t.Errorf("not found; in all: %q", v.Violations())
			}
		})
	}
}

func TestScheduleDependsOnTheSeedOnly(t *testing.T) {
	cast := Cast{Workers: 3, Backends: 2, Watchers: 2, Links: 12}
	draw := func(seed uint64, n int) []Fault { return Draw(seed, n, time.Minute, 2*time.Second, cast) }
	if !slices.Equal(draw(1, 220), draw(1, 220)) || slices.Equal(draw(1, 220), draw(2, 220)) {
		t.Error("one seed must give one schedule, and another another")
	}
	for _, n := range []int{1, 20, 220} {
		faults := draw(3, n)
		kinds, _ := ByKind(faults)
		if len(faults) < n || len(kinds) != len(deck) {
			t.Errorf("%d requested: %d faults of %d kinds", n, len(faults), len(kinds))
		}
		for _, f := range faults {
			if f.At < lead(time.Minute) || f.At >= time.Minute || f.For <= 0 || f.Target < 0 || f.Target >= cast.of(f.Kind) {
				t.Errorf("%s", f)
			}
			if f.Kind == WorkerFrozen && f.For <= 2*time.Second {
				t.Errorf("%s: not past its lease", f)
			}
		}
	}
}
