package audit

import (
	"context"
	"fmt"
	"slices"

	"sluice/backend/sale"
)

// Difference is one order that is not where it should be.
type Difference struct {
	OrderID sale.OrderID `json:"order_id,string"`
	Buyer   string       `json:"buyer"`
	Found   string       `json:"found"`   // where it is
	Missing string       `json:"missing"` // where it is not, and should be
}

func (d Difference) String() string {
	return fmt.Sprintf("order %s of buyer %q: %s, and %s", d.OrderID, d.Buyer, d.Found, d.Missing)
}

// MaxExplained is how many orders Explain names at most.
const MaxExplained = 20

// Explain finds the orders that make a sale not balance, while it runs. What looks wrong is looked at twice, with a new census in between: an order on its
// way is somewhere else the second time, and only one that is nowhere both times is named. It reads everything, in small pieces: seconds per million orders, and
// nobody waits for it. Errors wrap sale.ErrUnavailable.
func (l *Checker) Explain(ctx context.Context, saleID string) ([]Difference, error) {
	var suspects map[sale.OrderID]Difference
	for look := range 2 {
		found, err := l.findSuspects(ctx, saleID)
		if err != nil {
			return nil, fmt.Errorf("ledger: explain: %w", err)
		}
		if look > 0 {
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
	list := make([]Difference, 0, len(suspects))
	for _, d := range suspects {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b Difference) int { return int(min(max(a.OrderID-b.OrderID, -1), 1)) })
	if len(list) > MaxExplained {
		list = list[:MaxExplained]
	}
	return list, nil
}

// maxSuspects bounds what one look remembers. A sale with more is beyond naming orders.
const maxSuspects = 10_000

// look compares the places that buyers hold with where orders are, and rows with the places. Places are read before the census and SQL last: an order gets
// its place together with its message, and leaves the queue only as a row.
func (l *Checker) findSuspects(ctx context.Context, saleID string) (map[sale.OrderID]Difference, error) {
	type holder struct {
		buyer string
		nth   int
	}
	places := map[sale.OrderID]holder{}
	if err := l.stock.Places(ctx, saleID, func(buyer string, nth int, id sale.OrderID) { places[id] = holder{buyer, nth} }); err != nil {
		return nil, err
	}
	census, err := l.stock.CountUnits(ctx, saleID)
	if err != nil {
		return nil, err
	}
	census.InFlight(func(m sale.Order) { delete(places, m.ID) })

	found := map[sale.OrderID]Difference{}
	var page []sale.Order
	check := func() error {
		holds, err := l.stock.HaveSlots(ctx, page)
		if err != nil {
			return err
		}
		for i, o := range page {
			if !holds[i] && len(found) < maxSuspects {
				found[o.ID] = Difference{o.ID, o.Buyer, "is a row", "its buyer holds no place with it in Redis"}
			}
		}
		page = page[:0]
		return nil
	}
	err = l.rows.OrdersOf(ctx, saleID, func(o sale.Order) error {
		if o.Status == sale.StatusCancelled {
			return nil
		}
		delete(places, o.ID)
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
	for id := range places {
		if ids = append(ids, id); len(ids) == maxSuspects {
			break
		}
	}
	statuses, err := l.rows.Statuses(ctx, ids) // rows by now, or cancelled ones whose place is about to be freed
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		switch status, isRow := statuses[id]; {
		case !isRow:
			found[id] = Difference{id, places[id].buyer, "its buyer holds a place with it", "it is neither a row nor in the queue"}
		case status == sale.StatusCancelled:
			found[id] = Difference{id, places[id].buyer, "its row is cancelled", "its buyer still holds a place with it"}
		}
	}
	return found, nil
}
