package chaos

import (
	"slices"
	"testing"
	"time"
)

// honest returns a consistent small shop: ann's order is a row, bob's answer was lost and only Redis has the order,
// cid's row was cancelled, dot's order is dead.
func honest() (*History, *Books) {
	h := NewHistory()
	h.offer("s", Offer{Stock: 8, PerBuyer: 1})
	h.restocked("s", 2)
	in := func(buyer string) Place { return Place{"s", buyer} }
	for _, buyer := range []string{"ann", "bob", "cid", "dot", "eve"} {
		h.sends(in(buyer))
	}
	for id, buyer := range map[string]string{"1": "ann", "3": "cid", "4": "dot"} {
		h.answered(Request{in(buyer), "first"}, answer{status: 202, OrderID: id}, 0)
	}
	h.cancels("3")
	return h, &Books{
		Sales: map[string]Shelf{"s": {Stock: 10, Sold: 2, Left: 7, Spread: 1}},
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
		}, func(v Verdict) []string { return v.Unrecorded }},
		"a row without a purchase": {func(_ *History, b *Books) {
			p := Place{"s", "zoe"}
			b.Rows, b.Holders[p] = append(b.Rows, Row{ID: "9", Place: p}), []string{"9"}
		}, func(v Verdict) []string { return v.Unrecorded }},
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
		"a unit that has not returned": {
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
			h.answered(Request{Place{"s", "ann"}, "first"}, answer{status: 202, OrderID: "2"}, 0)
		}, func(v Verdict) []string { return v.Contrary }},
		"one order confirmed to two buyers": {func(h *History, _ *Books) {
			h.answered(Request{Place{"s", "eve"}, "first"}, answer{status: 202, OrderID: "1"}, 0)
		}, func(v Verdict) []string { return v.Contrary }},
		"already bought, and no row": {func(h *History, _ *Books) {
			h.answered(Request{Place{"s", "eve"}, "x"}, answer{status: 409, OrderID: "8", Code: "already-bought"}, 0)
		}, func(v Verdict) []string { return v.Lost }},
		"a sale that SQL lacks": {
			func(_ *History, b *Books) { delete(b.Sales, "s") }, func(v Verdict) []string { return v.Units },
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, b := honest()
			c.spoil(h, b)
			if v := Check(h, b); len(c.found(v)) == 0 {
				t.Errorf("not found; all violations: %q", v.Violations())
			}
		})
	}
}

func TestOrdersHeldAreThoseInSlots(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "5": {"5"}, ",5": {"5"}, "5:request,,7": {"5", "7"}, "5,7:request;4:older;3:old": {"5", "7"}, ";4:old": nil,
	} {
		if got := ordersHeld(text); !slices.Equal(got, want) {
			t.Errorf("slots %q hold %q, want %q", text, got, want)
		}
	}
}

func TestScheduleDependsOnTheSeedOnly(t *testing.T) {
	for name, cast := range map[string]Cast{
		"single":  {Workers: 3, Backends: 2, Watchers: 2, Links: 12, Shards: 2},
		"cluster": {Workers: 3, Backends: 2, Watchers: 2, Links: 12, Shards: 8, Masters: 3},
	} {
		t.Run(name, func(t *testing.T) { checkSchedule(t, cast) })
	}
}

func checkSchedule(t *testing.T, cast Cast) {
	draw := func(seed uint64, n int) []Fault { return Draw(seed, n, time.Minute, 2*time.Second, cast) }
	if !slices.Equal(draw(1, 220), draw(1, 220)) || slices.Equal(draw(1, 220), draw(2, 220)) {
		t.Error("one seed must give one schedule, and another seed a different one")
	}
	for _, n := range []int{1, 20, 220} {
		faults := draw(3, n)
		kinds, _ := ByKind(faults)
		if len(faults) < n || len(kinds) != len(cast.deck()) {
			t.Errorf("%d requested: %d faults of %d kinds", n, len(faults), len(kinds))
		}
		for _, f := range faults {
			if f.At < lead(time.Minute) || f.At >= time.Minute || f.For <= 0 || f.Target < 0 || f.Target >= cast.of(f.Kind) {
				t.Errorf("%s", f)
			}
			if f.Kind == WorkerFrozen && f.For <= 2*time.Second {
				t.Errorf("%s: not past its lease", f)
			}
			if f.Node < 0 || f.Node > 2*cast.Masters || f.Kind == SlotMoved && (f.Node < 1 || f.Node >= cast.Masters) {
				t.Errorf("%s: no such node", f)
			}
		}
	}
}

// A request key may get another order only after a loss of data between its requests, and if the buyer may have two.
func TestKeysAreForgottenByLossesOnly(t *testing.T) {
	for _, c := range []struct {
		perBuyer             int
		lostBefore, lostThen int64 // before the first request, and before the second answer
		wrong                bool
	}{
		{2, 0, 0, true}, {2, 0, 1, false}, {2, 1, 1, true}, {1, 0, 1, true},
	} {
		losses := c.lostBefore
		h := NewHistory()
		h.Losses = func() int64 { return losses }
		h.offer("s", Offer{Stock: 5, PerBuyer: c.perBuyer})
		r := Request{Place{"s", "ann"}, "first"}
		h.answered(r, answer{status: 202, OrderID: "1"}, h.sends(r.Place))
		sent := h.sends(r.Place)
		losses = c.lostThen
		h.answered(r, answer{status: 202, OrderID: "2"}, sent)
		if (len(h.Wrong) > 0) != c.wrong || (h.Forgotten > 0) == c.wrong {
			t.Errorf("%+v: wrong %v, forgotten %d", c, h.Wrong, h.Forgotten)
		}
	}
}

// An address is renamed wherever the reply is split into parts, and nothing else changes.
func TestAddressesAreRenamedInAnyPart(t *testing.T) {
	a := &addresses{Addresses: map[string]string{
		"127.0.0.1:11111": "127.0.0.1:33333", "127.0.0.1:22222": "127.0.0.1:44444",
	}}
	const reply = "$99\r\nabc 127.0.0.1:11111@21111 myself\ndef 127.0.0.1:22222@22223 1\n 127.0.0.1:11111 127.0.0.1:9\r\n"
	const want = "$99\r\nabc 127.0.0.1:33333@21111 myself\ndef 127.0.0.1:44444@22223 1\n 127.0.0.1:11111 127.0.0.1:9\r\n"
	for cut := range len(reply) + 1 {
		first, kept := a.rename([]byte(reply[:cut]))
		second, end := a.rename(append(kept, reply[cut:]...))
		if got := string(first) + string(second); got != want || len(end) > 0 {
			t.Fatalf("cut at %d: %q, and %q is kept", cut, got, end)
		}
	}
}
