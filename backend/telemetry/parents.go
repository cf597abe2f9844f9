package telemetry

import (
	"context"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
)

// Parents looks up the traceparents under which orders were accepted. It is safe for concurrent use.
type Parents struct {
	client redisconn.Client
	space  keyspace.Space
}

// NewParents returns Parents over the Redis with the stock. The client may be guarded.
func NewParents(client redisconn.Client, space keyspace.Space) *Parents {
	return &Parents{client, space}
}

// lookupTimeout bounds a lookup. A batch of orders or events waits that long only while spans are recorded and Redis
// does not respond.
const lookupTimeout = 3 * time.Second

// Fill looks up the Parent of every item that has none. The items of a shard that is not available remain without one.
func (p *Parents) Fill(ctx context.Context, items []Item) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	byShard := map[keyspace.Shard][]int{} // indices of items
	for i, item := range items {
		if item.Parent == "" {
			shard := p.space.ShardOfOrder(item.Order) // of the sale, or of the segment that accepted the order
			byShard[shard] = append(byShard[shard], i)
		}
	}
	for shard, indices := range byShard {
		keys := make([]string, len(indices))
		for i, at := range indices {
			keys[i] = shard.Trace(items[at].Order.String())
		}
		found, err := p.client.MGet(ctx, keys...).Result()
		if err != nil {
			continue
		}
		for i, at := range indices {
			items[at].Parent, _ = found[i].(string)
		}
	}
}
