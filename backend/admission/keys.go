package admission

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"sluice/backend/redis/keyspace"
)

// saleKeys holds the keys that every purchase of one sale uses.
type saleKeys struct {
	saleID, sale, stock, buyers, ready, wake, orders string

	published atomic.Int64 // time of the last publication of the units left, ms since 1970
}

// keyCache caches the keys of a few sales; building them takes longer than the rest of Admit without Redis. Its size is
// fixed, because clients choose sale ids: a request for an unknown sale evicts one entry at most. The zero value is
// empty.
type keyCache [64]atomic.Pointer[saleKeys]

func (c *keyCache) get(space keyspace.Space, saleID string) *saleKeys {
	entry := &c[xxhash.Sum64String(saleID)%uint64(len(c))]
	if k := entry.Load(); k != nil && k.saleID == saleID {
		return k
	}
	shard := space.ShardOf(saleID)
	k := &saleKeys{
		saleID: saleID, sale: shard.Sale(saleID), stock: shard.Stock(saleID), buyers: shard.Buyers(saleID),
		ready: shard.Ready(), wake: shard.Wake(), orders: shard.Orders(),
	}
	entry.Store(k)
	return k
}
