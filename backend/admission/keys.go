package admission

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"sluice/backend/redis/keyspace"
	"sluice/backend/spread"
)

// partKeys holds the keys that every purchase in one part of a sale uses.
type partKeys struct {
	part   spread.Part
	target string // names the part in the first argument of admit.lua
	shard  keyspace.Shard

	sale, stock, buyers, ready, wake, orders string

	published atomic.Int64 // time of the last publication of the units left, ms since 1970
}

// keyCache caches the keys of a few parts, because building them takes longer than all other work of Admit outside
// Redis. Its size is fixed, because clients choose sale ids: a request for an unknown sale evicts one entry at most.
// The zero value is empty.
type keyCache [64]atomic.Pointer[partKeys]

func (c *keyCache) get(space keyspace.Space, part spread.Part) *partKeys {
	entry := &c[(xxhash.Sum64String(part.SaleID)+uint64(part.Segment))%uint64(len(c))]
	if k := entry.Load(); k != nil && k.part == part {
		return k
	}
	shard := space.ShardOfSegment(part.SaleID, part.Segment)
	k := &partKeys{
		part:   part,
		target: part.SaleID,
		shard:  shard,
		sale:   shard.Sale(part.SaleID),
		stock:  shard.Stock(part.SaleID),
		buyers: shard.Buyers(part.SaleID),
		ready:  shard.Ready(),
		wake:   shard.Wake(),
		orders: shard.Orders(),
	}
	if part.Spread > 1 {
		k.target += " " + segmentField(part)
	}
	entry.Store(k)
	return k
}
