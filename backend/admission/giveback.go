package admission

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"sluice/backend/sale"
)

// maxGiveBack is the most orders that one run of the script takes.
const maxReturns = 500

// GiveBack takes back the units of orders of one sale that were cancelled in SQL, and frees their buyers' places, each once however often it is called.
// numbers are those of the returns within the sale, in the order of the orders; 0 for an order that held no unit here. They are remembered in
// Redis until Forget. Errors: ErrNotLoaded, and nothing was given back; or one that wraps sale.ErrUnavailable, and then some may have been.
func (s *Stock) ReturnUnits(ctx context.Context, saleID string, orders []sale.Order) (numbers []int64, err error) {
	shard := s.space.ShardOf(saleID)
	keys := []string{shard.Sale(saleID), shard.Stock(saleID), shard.Buyers(saleID), shard.Returns(saleID)}
	for part := range slices.Chunk(orders, maxReturns) {
		args := make([]any, 0, 2*len(part))
		for _, o := range part {
			args = append(args, o.ID.String(), o.Buyer)
		}
		answers, err := s.give.Run(ctx, s.client, keys, args...).StringSlice()
		switch {
		case err != nil:
			return nil, unavailable("give back", err)
		case len(answers) == 0:
			return nil, fmt.Errorf("%w: %s", ErrNotLoaded, saleID)
		case len(answers) != len(part):
			return nil, unavailable("give back", fmt.Errorf("the script answered %d of %d", len(answers), len(part)))
		}
		for _, answer := range answers {
			n, err := strconv.ParseInt(answer, 10, 64)
			if err != nil {
				return nil, unavailable("give back", fmt.Errorf("the script answered %q", answer))
			}
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// Forget drops what GiveBack has remembered of orders whose rows know their number by now. An error wraps sale.ErrUnavailable.
func (s *Stock) ConfirmReturns(ctx context.Context, saleID string, ids []sale.OrderID) error {
	if len(ids) == 0 {
		return nil
	}
	fields := make([]string, len(ids))
	for i, id := range ids {
		fields[i] = id.String()
	}
	if err := s.client.HDel(ctx, s.returns(saleID), fields...).Err(); err != nil {
		return unavailable("forget returns", err)
	}
	return nil
}

// Given returns some of the orders of a sale whose return is remembered: all of them when they are few. An error wraps sale.ErrUnavailable.
func (s *Stock) PendingReturns(ctx context.Context, saleID string) ([]sale.OrderID, error) {
	fields, _, err := s.client.HScan(ctx, s.returns(saleID), 0, "", 2*maxReturns).Result()
	if err != nil {
		return nil, unavailable("read returns", err)
	}
	var ids []sale.OrderID
	for i := 0; i < len(fields); i += 2 {
		if id, err := sale.ParseOrderID(fields[i]); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

func (s *Stock) returns(saleID string) string {
	return s.space.ShardOf(saleID).Returns(saleID)
}
