package admission

import (
	"context"
	"errors"

	"sluice/backend/redis/keyspace"
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
	parts, err := s.parts(ctx, saleID)
	if errors.Is(err, ErrNotLoaded) {
		return have, nil
	}
	if err != nil {
		return nil, err
	}
	at := make([][]int, len(parts)) // the orders of each part
	for i, o := range orders {
		home := spread.Home(o.Buyer, len(parts))
		at[home] = append(at[home], i)
	}
	for _, part := range parts {
		mine := at[part.Segment]
		if len(mine) == 0 {
			continue
		}
		buyers := make([]string, len(mine))
		for i, n := range mine {
			buyers[i] = orders[n].Buyer
		}
		slots, err := s.cfg.Client.HMGet(ctx, s.ShardOf(part).Buyers(saleID), buyers...).Result()
		if err != nil {
			return nil, unavailable("slots of sale "+saleID, err)
		}
		for i, n := range mine {
			text, _ := slots[i].(string)
			have[n] = keyspace.Slots(text).Find(orders[n].ID) > 0
		}
	}
	return have, nil
}
