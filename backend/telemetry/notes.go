package telemetry

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
)

// Notes finds the traces under which orders were accepted.
type Parents struct {
	client redis.UniversalClient
	space  keyspace.Space
}

// NewNotes makes Notes of the Redis that holds the stock. The client may be one that refuses a Redis whose data is not verified.
func NewParents(client redis.UniversalClient, space keyspace.Space) *Parents {
	return &Parents{client, space}
}

// noteTimeout bounds one look: orders must not wait for what only shows them.
const lookupTimeout = 100 * time.Millisecond

// Fill looks up the Parent of every item that has none. Without an answer from Redis they stay without one.
func (n *Parents) Fill(ctx context.Context, items []Item) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	byShard := map[keyspace.Shard][]int{}
	for i, item := range items {
		if item.Parent == "" {
			shard := n.space.ShardOf(item.SaleID)
			byShard[shard] = append(byShard[shard], i)
		}
	}
	for shard, places := range byShard {
		keys := make([]string, len(places))
		for i, at := range places {
			keys[i] = shard.Trace(items[at].Order.String())
		}
		found, err := n.client.MGet(ctx, keys...).Result()
		if err != nil {
			return
		}
		for i, at := range places {
			items[at].Parent, _ = found[i].(string)
		}
	}
}
