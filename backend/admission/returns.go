package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/backend/sale"
	"sluice/backend/spread"
	redisscript "sluice/lua/redis"
)

// maxReturns bounds the orders of one run of the script.
const maxReturns = 500

// ReturnUnits returns the units of orders of one sale that were cancelled in SQL, and releases their slots. It is
// idempotent by order. It returns the number of each return within the sale, in the order of orders; 0 for an order
// that held no unit, and -1 for an order whose unit may be missing because of the error. An error of one home does not
// delay the units of the others. Redis keeps the numbers until ConfirmReturns. The error is ErrNotLoaded, or wraps
// sale.ErrUnavailable.
func (s *Stock) ReturnUnits(ctx context.Context, saleID string, orders []sale.Order) (numbers []int64, err error) {
	numbers = make([]int64, len(orders))
	for i := range numbers {
		numbers[i] = -1
	}
	homes, at, err := s.byHome(ctx, saleID, orders)
	if err != nil {
		return numbers, err
	}
	var failures []error
	for n, home := range homes {
		for some := range slices.Chunk(at[n], maxReturns) {
			if err := s.returnUnits(ctx, home, orders, some, numbers); err != nil {
				failures = append(failures, err)
				break
			}
		}
	}
	return numbers, errors.Join(failures...)
}

// returnUnits returns the units of the orders at these positions to their home and stores the numbers of the returns.
func (s *Stock) returnUnits(
	ctx context.Context, home spread.Part, orders []sale.Order, at []int, numbers []int64,
) error {
	shard, id := s.ShardOf(home), home.SaleID
	keys := []string{shard.Sale(id), shard.Stock(id), shard.Buyers(id), shard.Returns(id), shard.Guard()}
	args := append(make([]any, 0, 1+2*len(at)), s.cfg.Deployment.owner())
	for _, i := range at {
		args = append(args, orders[i].ID.String(), orders[i].Buyer)
	}
	results, err := redisscript.Run(ctx, s.cfg.Client, "return_unit", keys, args...).Int64Slice()
	switch {
	case err != nil:
		return unavailable("return units", err)
	case len(results) == 0:
		return fmt.Errorf("%w: %s", ErrNotLoaded, id)
	case len(results) != len(at):
		err = fmt.Errorf("the script returned %d results for %d orders", len(results), len(at))
		return unavailable("return units", err)
	}
	for i, number := range results {
		numbers[at[i]] = number
	}
	return nil
}

// ConfirmReturns deletes the numbers of returns that the rows of these orders in SQL have. It uses ids and buyers.
// Errors are those of Spread; the orders of the other homes are confirmed then.
func (s *Stock) ConfirmReturns(ctx context.Context, saleID string, orders []sale.Order) error {
	homes, at, err := s.byHome(ctx, saleID, orders)
	if err != nil {
		return err
	}
	var failures []error
	for n, home := range homes {
		if len(at[n]) == 0 {
			continue
		}
		fields := make([]string, len(at[n]))
		for i, k := range at[n] {
			fields[i] = orders[k].ID.String()
		}
		if err := s.cfg.Client.HDel(ctx, s.ShardOf(home).Returns(saleID), fields...).Err(); err != nil {
			failures = append(failures, unavailable("confirm returns", err))
		}
	}
	return errors.Join(failures...)
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
