package admission

import (
	"context"
	"fmt"
	"slices"

	"sluice/backend/sale"
	"sluice/backend/spread"
	redisscript "sluice/lua/redis"
)

// maxReturns bounds the orders of one run of the script.
const maxReturns = 500

// ReturnUnits returns the units of orders of one part of a sale that were cancelled in SQL, and releases their slots.
// It is idempotent by order. It returns the number of each return within the part, in the order of orders; 0 for an
// order that held no unit. Redis keeps the numbers until ConfirmReturns. The error is ErrNotLoaded, or wraps
// sale.ErrUnavailable; some units may be returned then.
func (s *Stock) ReturnUnits(ctx context.Context, of spread.Part, orders []sale.Order) (numbers []int64, err error) {
	shard, id := s.ShardOf(of), of.SaleID
	keys := []string{shard.Sale(id), shard.Stock(id), shard.Buyers(id), shard.Returns(id), shard.Guard()}
	for some := range slices.Chunk(orders, maxReturns) {
		args := append(make([]any, 0, 1+2*len(some)), s.cfg.Deployment.owner())
		for _, o := range some {
			args = append(args, o.ID.String(), o.Buyer)
		}
		results, err := redisscript.Run(ctx, s.cfg.Client, "return_unit", keys, args...).Int64Slice()
		switch {
		case err == nil && len(results) == 0:
			return nil, fmt.Errorf("%w: %s", ErrNotLoaded, id)
		case err == nil && len(results) != len(some):
			err = fmt.Errorf("the script returned %d results for %d orders", len(results), len(some))
		}
		if err != nil {
			return nil, unavailable("return units", err)
		}
		numbers = append(numbers, results...)
	}
	return numbers, nil
}

// ConfirmReturns deletes the return numbers of these orders from Redis. Their rows in SQL must have the numbers. It
// uses only the ids of orders. An error wraps sale.ErrUnavailable.
func (s *Stock) ConfirmReturns(ctx context.Context, of spread.Part, orders []sale.Order) error {
	if len(orders) == 0 {
		return nil
	}
	fields := make([]string, len(orders))
	for i, o := range orders {
		fields[i] = o.ID.String()
	}
	if err := s.cfg.Client.HDel(ctx, s.ShardOf(of).Returns(of.SaleID), fields...).Err(); err != nil {
		return unavailable("confirm returns", err)
	}
	return nil
}

// PendingReturns returns orders of a part of a sale whose unit was returned and whose return is not confirmed: all of
// them, or some if there are many. An error wraps sale.ErrUnavailable.
func (s *Stock) PendingReturns(ctx context.Context, of spread.Part) ([]sale.OrderID, error) {
	fields, _, err := s.cfg.Client.HScan(ctx, s.ShardOf(of).Returns(of.SaleID), 0, "", 2*maxReturns).Result()
	if err != nil {
		return nil, unavailable("pending returns", err)
	}
	return orderIDs(fields), nil
}

// orderIDs returns the ids in a list of alternating order ids and values. It skips fields that are not ids.
func orderIDs(pairs []string) []sale.OrderID {
	var ids []sale.OrderID
	for at := 0; at < len(pairs); at += 2 {
		if id, err := sale.ParseOrderID(pairs[at]); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}
