package admission

import (
	"context"
	"fmt"
	"slices"

	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
)

// maxReturns bounds the orders of one run of the script.
const maxReturns = 500

// ReturnUnits returns the units of orders of one sale that were cancelled in SQL, and releases their slots. It is
// idempotent by order. It returns the number of each return within the sale, in the order of orders; 0 for an order
// that held no unit. Redis keeps the numbers until ConfirmReturns. It returns ErrNotLoaded, and no unit was returned;
// or an error that wraps sale.ErrUnavailable, and some units may have been returned.
func (s *Stock) ReturnUnits(ctx context.Context, saleID string, orders []sale.Order) (numbers []int64, err error) {
	shard := s.space.ShardOf(saleID)
	keys := []string{shard.Sale(saleID), shard.Stock(saleID), shard.Buyers(saleID), shard.Returns(saleID)}
	for part := range slices.Chunk(orders, maxReturns) {
		args := make([]any, 0, 2*len(part))
		for _, o := range part {
			args = append(args, o.ID.String(), o.Buyer)
		}
		results, err := redisscript.Run(ctx, s.client, "return_unit", keys, args...).Int64Slice()
		switch {
		case err != nil:
			return nil, unavailable("return units", err)
		case len(results) == 0:
			return nil, fmt.Errorf("%w: %s", ErrNotLoaded, saleID)
		case len(results) != len(part):
			err = fmt.Errorf("the script returned %d results for %d orders", len(results), len(part))
			return nil, unavailable("return units", err)
		}
		numbers = append(numbers, results...)
	}
	return numbers, nil
}

// ConfirmReturns deletes the numbers of returns that the rows in SQL have. An error wraps sale.ErrUnavailable.
func (s *Stock) ConfirmReturns(ctx context.Context, saleID string, ids []sale.OrderID) error {
	if len(ids) == 0 {
		return nil
	}
	fields := make([]string, len(ids))
	for i, id := range ids {
		fields[i] = id.String()
	}
	if err := s.client.HDel(ctx, s.space.ShardOf(saleID).Returns(saleID), fields...).Err(); err != nil {
		return unavailable("confirm returns", err)
	}
	return nil
}

// PendingReturns returns orders of a sale whose unit was returned and whose return is not confirmed: all of them, or
// some if there are many. An error wraps sale.ErrUnavailable.
func (s *Stock) PendingReturns(ctx context.Context, saleID string) ([]sale.OrderID, error) {
	fields, _, err := s.client.HScan(ctx, s.space.ShardOf(saleID).Returns(saleID), 0, "", 2*maxReturns).Result()
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
