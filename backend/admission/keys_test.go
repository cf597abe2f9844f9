package admission

import (
	"fmt"
	"testing"

	"sluice/backend/keyspace"
)

func TestKeysAreThoseOfTheSaleHoweverManyThereAre(t *testing.T) {
	var c keyCache
	space := keyspace.Space{Lanes: 3}
	for range 2 {
		for i := range 10 * len(c) {
			id := fmt.Sprintf("sale-%d", i)
			lane := space.LaneOf(id)
			want := [...]string{id, lane.Sale(id), lane.Stock(id), lane.Buyers(id), lane.Ready(), lane.Wake(), lane.Orders()}
			k := c.of(space, id)
			if got := [...]string{k.saleID, k.sale, k.stock, k.buyers, k.ready, k.wake, k.orders}; got != want {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
	}
}

func TestKeysOfOneSaleAreMadeOnce(t *testing.T) {
	var c keyCache
	c.of(keyspace.Space{}, "drop")
	if n := testing.AllocsPerRun(100, func() { c.of(keyspace.Space{}, "drop") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
