package spread

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// For any changes since the backup, the allocations add up to the stock. If the stock is large enough for all orders,
// no segment has fewer units than its orders.
func TestRecoveredAllocationsCoverTheOrders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.IntRange(2, 6).Draw(t, "segments")
		small := rapid.Int64Range(0, 9)
		applied, inSQL := make([]State, k), make([]Allocation, k)
		var stock, held, newer int64
		for i := range applied {
			s := State{Loaded: true, Version: rapid.Int64Range(1, 5).Draw(t, "version"), Left: small.Draw(t, "left")}
			if out := small.Draw(t, "out"); out > 0 {
				s.Out = &Transfer{From: i, Units: out}
			}
			orders := small.Draw(t, "orders")
			s.Units = orders + s.Left
			if s.Out != nil {
				s.Units += s.Out.Units
			}
			applied[i], held, stock = s, held+orders, stock+s.Units
			inSQL[i] = Allocation{Units: s.Units, Version: s.Version} // as Redis has it, or older
			if rapid.Bool().Draw(t, "older") {
				inSQL[i], newer = Allocation{Units: small.Draw(t, "units"), Version: s.Version - 1}, newer+1
			}
		}
		stock = max(held, stock+rapid.Int64Range(-20, 20).Draw(t, "difference"))
		all := Recover(stock, inSQL, applied)
		if newer == 0 {
			if !slices.Equal(all, inSQL) {
				t.Fatalf("allocations %v of a database that is not older became %v", inSQL, all)
			}
			return
		}
		for i, a := range all {
			if a.Units < applied[i].held() || a.Version <= max(applied[i].Version, inSQL[i].Version) {
				t.Fatalf("segment %d has %+v; SQL had %+v, and Redis %+v", i, a, inSQL[i], applied[i])
			}
			stock -= a.Units
		}
		if stock != 0 {
			t.Fatalf("%v lacks %d units of the stock", all, stock)
		}
	})
}

func TestRecover(t *testing.T) {
	for name, c := range map[string]struct {
		stock   int64
		inSQL   []Allocation
		applied []State
		want    []Allocation
	}{
		"a move": {
			6, []Allocation{{3, 1}, {3, 1}},
			[]State{{Loaded: true, Version: 2, Units: 1, Left: 1}, {Loaded: true, Version: 2, Units: 5}},
			[]Allocation{{1, 3}, {5, 3}},
		},
		"a move that its source has not applied": {
			6, []Allocation{{3, 1}, {3, 1}},
			[]State{
				{Loaded: true, Version: 1, Units: 3, Left: 1, Out: &Transfer{Units: 2}},
				{Loaded: true, Version: 2, Units: 5},
			},
			[]Allocation{{1, 2}, {5, 3}},
		},
		"a move that its source has not applied, and units on sale in the target": {
			6, []Allocation{{3, 1}, {3, 1}},
			[]State{
				{Loaded: true, Version: 2, Units: 5, Left: 2},
				{Loaded: true, Version: 1, Units: 3, Left: 1, Out: &Transfer{Units: 2}},
			},
			[]Allocation{{5, 3}, {1, 2}},
		},
		"a move to the same segment that the restored database has committed": {
			9, []Allocation{{2, 2}, {4, 2}, {3, 1}},
			[]State{
				{Loaded: true, Version: 2, Units: 2, Left: 2}, {Loaded: true, Version: 2, Units: 6},
				{Loaded: true, Version: 2},
			},
			[]Allocation{{3, 3}, {6, 3}, {0, 3}},
		},
		"the source is not in Redis": {
			6, []Allocation{{3, 1}, {3, 1}},
			[]State{{}, {Loaded: true, Version: 2, Units: 5}},
			[]Allocation{{1, 2}, {5, 3}},
		},
		"a restock that SQL has lost": {
			6, []Allocation{{3, 1}, {3, 1}},
			[]State{{Loaded: true, Version: 2, Units: 5}, {Loaded: true, Version: 2, Units: 5, Left: 1}},
			[]Allocation{{2, 3}, {4, 3}},
		},
	} {
		if got := Recover(c.stock, c.inSQL, c.applied); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
