package admission

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Remove deletes a sale from Redis, in one step. Nothing of it may be queued any more, and SQL must have forgotten it: what SQL has is loaded again. It may be
// repeated. An error wraps sale.ErrUnavailable.
func (s *Stock) Remove(ctx context.Context, id string) error {
	lane := s.space.LaneOf(id)
	_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.SRem(ctx, lane.Sales(), id)
		p.Unlink(ctx, lane.Sale(id), lane.Stock(id), lane.Buyers(id), lane.Returns(id)) // the buyers may be a million: freed beside other work
		return nil
	})
	if err != nil {
		return unavailable("remove "+id, err)
	}
	return nil
}
