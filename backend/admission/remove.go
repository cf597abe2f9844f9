package admission

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Remove deletes a sale from Redis, in one step. Nothing of it may be queued any more, and SQL must have forgotten it: what SQL has is loaded again. It may be
// repeated. An error wraps sale.ErrUnavailable.
func (s *Stock) Remove(ctx context.Context, id string) error {
	shard := s.space.ShardOf(id)
	_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.SRem(ctx, shard.Sales(), id)
		p.Unlink(ctx, shard.Sale(id), shard.Stock(id), shard.Buyers(id), shard.Returns(id)) // the buyers may be a million: freed beside other work
		return nil
	})
	if err != nil {
		return unavailable("remove "+id, err)
	}
	return nil
}
