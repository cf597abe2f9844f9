package spread

import "testing"

func TestSoldOutNeedsTwoEqualReadings(t *testing.T) {
	empty := State{Loaded: true, Version: 3, Units: 10, Returns: 5, Sold: 10}
	allocations := []Allocation{{10, 3}, {10, 3}}
	both := func(change func(*State)) (states []State) {
		states = []State{empty, empty}
		change(&states[1])
		return states
	}
	same := both(func(*State) {})
	if !provesSoldOut(allocations, same, same) {
		t.Fatal("two equal readings without units are not sold out")
	}
	for name, change := range map[string]func(*State){
		"a unit is left":               func(s *State) { s.Left = 1 },
		"units are in transfer":        func(s *State) { s.Out = &Transfer{From: 1, Units: 1, Version: 3} },
		"an allocation is not applied": func(s *State) { s.Version = 2 },
		"an allocation is newer":       func(s *State) { s.Version = 4 },
		"a unit was returned":          func(s *State) { s.Returns = 6 },
		"a segment cannot be read":     func(s *State) { *s = State{} },
	} {
		if provesSoldOut(allocations, both(change), same) || provesSoldOut(allocations, same, both(change)) {
			t.Errorf("sold out although %s", name)
		}
	}
	if provesSoldOut(allocations, same[:1], same[:1]) || provesSoldOut(nil, same, same) {
		t.Error("sold out although a segment is missing")
	}
}

func TestLeftCountsOutgoingUnits(t *testing.T) {
	units, complete := held([]State{{Loaded: true, Left: 2, Out: &Transfer{Units: 3}}, {}})
	if units != 5 || complete {
		t.Fatalf("%d units, complete %v", units, complete)
	}
}
