package admission

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"sluice/backend/redis/keyspace"
)

// saleKeys are the names of the keys that every purchase from one sale touches.
type saleKeys struct {
	saleID, sale, stock, buyers, ready, wake, orders string

	published atomic.Int64 // when a signal last said how many units are left, in ms since 1970
}

// keyCache keeps the names of a few sales, since putting them together takes longer than all else that Admit does before it asks Redis. Its size is
// fixed: the sale's id comes from outside, and whoever asks for sales that do not exist displaces a name and no more. The zero value is empty.
type keyCache [64]atomic.Pointer[saleKeys]

func (c *keyCache) of(space keyspace.Space, saleID string) *saleKeys {
	slot := &c[xxhash.Sum64String(saleID)%uint64(len(c))]
	if k := slot.Load(); k != nil && k.saleID == saleID {
		return k
	}
	shard := space.ShardOf(saleID)
	k := &saleKeys{
		saleID: saleID, sale: shard.Sale(saleID), stock: shard.Stock(saleID), buyers: shard.Buyers(saleID), ready: shard.Ready(), wake: shard.Wake(),
		orders: shard.Orders(),
	}
	slot.Store(k)
	return k
}
