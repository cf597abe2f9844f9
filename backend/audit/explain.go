package audit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"sluice/backend/sale"
	"sluice/backend/spread"
)

// Difference is one order in the wrong place.
type Difference struct {
	OrderID sale.OrderID `json:"order_id,string"`
	Buyer   string       `json:"buyer"`
	Found   string       `json:"found"`   // where the order is
	Missing string       `json:"missing"` // where the order should be and is not
}

func (d Difference) String() string {
	return fmt.Sprintf("order %s of buyer %q: %s, and %s", d.OrderID, d.Buyer, d.Found, d.Missing)
}

// MaxExplained bounds the orders that Explain returns.
const MaxExplained = 20

// Explain finds the orders that prevent a part of a sale from balancing, while it runs. It compares twice, with a new
// count each time: an order in transit differs only once, and Explain returns orders that differ both times. It reads
// all orders in small pieces, which takes seconds per million orders and blocks no purchase. Errors wrap
// sale.ErrUnavailable.
func (c *Checker) Explain(ctx context.Context, of spread.Part) ([]Difference, error) {
	var suspects map[sale.OrderID]Difference
	for round := range 2 {
		found, err := c.findSuspects(ctx, of)
		if err != nil {
			return nil, fmt.Errorf("audit: explain: %w", err)
		}
		if round > 0 {
			for id := range found {
				if _, before := suspects[id]; !before {
					delete(found, id)
				}
			}
		}
		if suspects = found; len(suspects) == 0 {
			return nil, nil
		}
	}
	byID := func(a, b Difference) int { return cmp.Compare(a.OrderID, b.OrderID) }
	list := slices.SortedFunc(maps.Values(suspects), byID)
	return list[:min(len(list), MaxExplained)], nil
}

// maxSuspects bounds the memory of one comparison.
const maxSuspects = 10_000

// findSuspects compares the slots of buyers with the orders in the queue and in SQL. It reads the slots before the
// queue, and SQL last: an order gets its slot together with its message, and leaves the queue only as a row.
func (c *Checker) findSuspects(ctx context.Context, of spread.Part) (map[sale.OrderID]Difference, error) {
	buyers := map[sale.OrderID]string{} // by the order in a slot
	err := c.stock.Slots(ctx, of, func(buyer string, _ int, id sale.OrderID) { buyers[id] = buyer })
	if err != nil {
		return nil, err
	}
	count, err := c.stock.CountUnits(ctx, of)
	if err != nil {
		return nil, err
	}
	count.InFlight(func(m sale.Order) { delete(buyers, m.ID) })

	found := map[sale.OrderID]Difference{}
	var page []sale.Order
	check := func() error {
		have, err := c.stock.HaveSlots(ctx, page)
		if err != nil {
			return err
		}
		for i, o := range page {
			if !have[i] && len(found) < maxSuspects {
				found[o.ID] = Difference{o.ID, o.Buyer, "is a row", "its buyer has no slot with it in Redis"}
			}
		}
		page = page[:0]
		return nil
	}
	err = c.rows.OrdersOf(ctx, of, func(o sale.Order) error {
		if o.Status == sale.StatusCancelled {
			return nil
		}
		delete(buyers, o.ID)
		if page = append(page, o); len(page) == 1000 {
			return check()
		}
		return nil
	})
	if err == nil && len(page) > 0 {
		err = check()
	}
	if err != nil {
		return nil, err
	}

	var ids []sale.OrderID
	for id := range buyers {
		if ids = append(ids, id); len(ids) == maxSuspects {
			break
		}
	}
	statuses, err := c.rows.Statuses(ctx, ids) // rows since then, or cancelled rows with a slot that is not released yet
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		switch status, isRow := statuses[id]; {
		case !isRow:
			found[id] = Difference{id, buyers[id], "its buyer has a slot with it", "it is neither a row nor in the queue"}
		case status == sale.StatusCancelled:
			found[id] = Difference{id, buyers[id], "its row is cancelled", "its buyer still has a slot with it"}
		}
	}
	return found, nil
}
