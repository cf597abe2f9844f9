package rebuild

import (
	"sync"

	"sluice/backend/sale"
)

// recent remembers which orders were written down, so that a buyer who repeats a request does not fill the journal. It forgets the oldest: such an order is written down
// once more, which does no harm. What it remembers is in the journal or a row, since a journal drops rows alone. The zero value is empty; it is safe for concurrent use.
type recent struct {
	mu         sync.Mutex
	young, old map[sale.OrderID]struct{}
}

// recentHalf is how many orders make the young ones old. Twice that many are remembered at most, in about 4 MB.
const recentHalf = 1 << 16

// without leaves out the orders that are remembered. The slice it is given stays as it is.
func (r *recent) without(orders []sale.Order) []sale.Order {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := func(o sale.Order) bool {
		_, young := r.young[o.ID]
		_, old := r.old[o.ID]
		return young || old
	}
	for i, o := range orders {
		if !known(o) {
			continue
		}
		left := append([]sale.Order(nil), orders[:i]...)
		for _, o := range orders[i+1:] {
			if !known(o) {
				left = append(left, o)
			}
		}
		return left
	}
	return orders // the common case
}

func (r *recent) add(orders []sale.Order) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range orders {
		if len(r.young) >= recentHalf || r.young == nil {
			r.young, r.old = make(map[sale.OrderID]struct{}, recentHalf), r.young
		}
		r.young[o.ID] = struct{}{}
	}
}
