package admission

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
)

// Slots calls yield for every order that a buyer holds in a part of a sale, in no order and in small reads. It can miss
// a slot that is assigned or released during the call, and can yield a slot twice. An error wraps sale.ErrUnavailable.
func (s *Stock) Slots(ctx context.Context, of spread.Part, yield func(buyer string, slot int, id sale.OrderID)) error {
	key := s.ShardOf(of).Buyers(of.SaleID)
	return ScanBuyers(ctx, s.cfg.Client, key, func(buyer string, slots keyspace.Slots) {
		for slot, id := range slots.All() {
			yield(buyer, slot, id)
		}
	})
}

// HaveSlots reports for each order whether its buyer holds a slot with it. The orders belong to one sale. In a sale
// that Redis does not hold there are no slots. An error wraps sale.ErrUnavailable.
func (s *Stock) HaveSlots(ctx context.Context, orders []sale.Order) ([]bool, error) {
	have := make([]bool, len(orders))
	if len(orders) == 0 {
		return have, nil
	}
	saleID := orders[0].SaleID
	k, err := s.Spread(ctx, saleID)
	if errors.Is(err, ErrNotLoaded) {
		return have, nil
	}
	if err != nil {
		return nil, err
	}
	slots := make([]*redis.StringCmd, len(orders))
	cmds, _ := s.cfg.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, o := range orders {
			home := s.ShardOf(spread.HomePart(saleID, o.Buyer, k))
			slots[i] = p.HGet(ctx, home.Buyers(saleID), o.Buyer)
		}
		return nil
	})
	if err := redisconn.PipelineError(cmds); err != nil {
		return nil, unavailable("slots of sale "+saleID, err)
	}
	for i, o := range orders {
		have[i] = keyspace.Slots(slots[i].Val()).Find(o.ID) > 0
	}
	return have, nil
}
