package keyspace

import (
	"slices"
	"testing"

	"sluice/backend/sale"
)

func TestSlotsWithRequests(t *testing.T) {
	s := Slots("5:one,,7,8:two;6:old;4:older")
	var held []sale.OrderID
	for slot, id := range s.All() {
		held = append(held, id, sale.OrderID(slot))
	}
	if !slices.Equal(held, []sale.OrderID{5, 1, 7, 3, 8, 4}) {
		t.Errorf("orders and slots %v", held)
	}
	for id, slot := range map[sale.OrderID]int{5: 1, 7: 3, 8: 4, 6: 0, 4: 0} {
		if got := s.Find(id); got != slot {
			t.Errorf("order %d is in slot %d, want %d", id, got, slot)
		}
	}
	if s.Count() != 3 || s.Empty(1) != 2 || s.Empty(9) != 9 {
		t.Errorf("%d orders, empty slot %d and %d", s.Count(), s.Empty(1), s.Empty(9))
	}
	if got, want := s.With(9, 1), Slots("9,,7,8:two;6:old;4:older"); got != want {
		t.Errorf("with another order in slot 1: %q, want %q", got, want)
	}
	if got, want := s.WithoutRequests(), Slots("5,,7,8"); got != want {
		t.Errorf("without requests: %q, want %q", got, want)
	}
	if s := Slots(";6:old"); s.Count() != 0 || s.Empty(1) != 1 || s.WithoutRequests() != "" || s.With(5, 1) != "5;6:old" {
		t.Errorf("requests of returned orders only: %d orders, %q", s.Count(), s.With(5, 1))
	}
}

func TestWithRequestsOf(t *testing.T) {
	for _, c := range []struct{ slots, other, want Slots }{
		{"", "", ""},
		{"5", "5", "5"},
		{"5", "5:one", "5:one"},
		{"6,5", "5:one,7:two,8;4:old", "6,5:one;4:old;7:two"},
		{"", "5:one", ";5:one"},
		{"5:one;7:two", "5:one,7:two", "5:one;7:two"},
	} {
		got := c.slots.WithRequestsOf(c.other)
		if got != c.want || got.WithRequestsOf(c.other) != got {
			t.Errorf("%q with the requests of %q: %q, want %q", c.slots, c.other, got, c.want)
		}
	}
}

func TestRequestHasAFixedLength(t *testing.T) {
	seen := map[string]bool{}
	for _, key := range []string{"", "r:1", "r:2", "x:0123456789abcdef0123456789abcdef"} {
		r := Request(key)
		if len(r) != 11 || seen[r] {
			t.Errorf("the request of key %q is %q", key, r)
		}
		seen[r] = true
	}
}
