package admission

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"sluice/backend/redis/keyspace"
)

// saleKeys holds the keys that every purchase of one target uses. A target is the first argument of admit.lua: a sale,
// or a segment of a sale.
type saleKeys struct {
	target string
	shard  keyspace.Shard

	saleID, sale, stock, buyers, ready, wake, orders string

	published atomic.Int64 // time of the last publication of the units left, ms since 1970
}

// keyCache caches the keys of a few sales; building them takes longer than the rest of Admit without Redis. Its size is
// fixed, because clients choose sale ids: a request for an unknown sale evicts one entry at most. The zero value is
// empty.
type keyCache [64]atomic.Pointer[saleKeys]

func (c *keyCache) get(space keyspace.Space, target string) *saleKeys {
	entry := &c[xxhash.Sum64String(target)%uint64(len(c))]
	if k := entry.Load(); k != nil && k.target == target {
		return k
	}
	saleID, segment, _ := strings.Cut(target, " ")
	index, _, _ := strings.Cut(segment, "/")
	home, _ := strconv.Atoi(index) // 0 for a sale in one shard
	shard := space.ShardOfSegment(saleID, home)
	k := &saleKeys{
		target: target,
		shard:  shard,
		saleID: saleID,
		sale:   shard.Sale(saleID),
		stock:  shard.Stock(saleID),
		buyers: shard.Buyers(saleID),
		ready:  shard.Ready(),
		wake:   shard.Wake(),
		orders: shard.Orders(),
	}
	entry.Store(k)
	return k
}
