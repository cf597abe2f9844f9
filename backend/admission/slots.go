package admission

import (
	"context"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// Slots calls yield for every order that a buyer of the sale holds, in no order and in small reads. It can miss a slot
// that is assigned or released during the call, and can yield a slot twice. An error wraps sale.ErrUnavailable.
func (s *Stock) Slots(ctx context.Context, saleID string, yield func(buyer string, slot int, id sale.OrderID)) error {
	key := s.space.ShardOf(saleID).Buyers(saleID)
	return ScanBuyers(ctx, s.client, key, func(buyer string, slots keyspace.Slots) {
		for slot, id := range slots.All() {
			yield(buyer, slot, id)
		}
	})
}

// HaveSlots reports for each order whether its buyer holds a slot with it. The orders belong to one sale. An error
// wraps sale.ErrUnavailable.
func (s *Stock) HaveSlots(ctx context.Context, orders []sale.Order) ([]bool, error) {
	have := make([]bool, len(orders))
	if len(orders) == 0 {
		return have, nil
	}
	buyers := make([]string, len(orders))
	for i, o := range orders {
		buyers[i] = o.Buyer
	}
	saleID := orders[0].SaleID
	slots, err := s.client.HMGet(ctx, s.space.ShardOf(saleID).Buyers(saleID), buyers...).Result()
	if err != nil {
		return nil, unavailable("slots of sale "+saleID, err)
	}
	for i, o := range orders {
		text, _ := slots[i].(string)
		have[i] = keyspace.Slots(text).Find(o.ID) > 0
	}
	return have, nil
}
