package admission

import (
	"fmt"
	"testing"

	"sluice/backend/redis/keyspace"
	"sluice/backend/spread"
)

func TestKeyCacheReturnsTheKeysOfTheSale(t *testing.T) {
	var c keyCache
	space := keyspace.Space{Shards: 3}
	for range 2 {
		for i := range 10 * len(c) {
			id := fmt.Sprintf("sale-%d", i)
			shard := space.ShardOf(id)
			want := [...]string{
				id, shard.Sale(id), shard.Stock(id), shard.Buyers(id), shard.Ready(), shard.Wake(), shard.Orders(),
			}
			k := c.get(space, spread.Part{SaleID: id})
			if got := [...]string{k.part.SaleID, k.sale, k.stock, k.buyers, k.ready, k.wake, k.orders}; got != want {
				t.Fatalf("got %v, want %v", got, want)
			}
		}
	}
}

func TestKeyCacheDoesNotAllocateOnAHit(t *testing.T) {
	var c keyCache
	drop := spread.Part{SaleID: "drop"}
	c.get(keyspace.Space{}, drop)
	if n := testing.AllocsPerRun(100, func() { c.get(keyspace.Space{}, drop) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
