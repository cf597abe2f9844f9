package rebuild

import (
	"slices"
	"sync"

	"sluice/backend/sale"
)

// recent remembers orders that were recorded, so that replays do not fill the journal. It
// evicts the oldest orders; recording one of them again has no effect. The journal or SQL has every remembered order,
// because a journal drops rows only. The zero value is empty. It is safe for concurrent use.
type recent struct {
	mu         sync.Mutex
	young, old map[sale.OrderID]struct{}
}

// recentHalf is the size of one generation of recent. Two generations take about 4 MB.
const recentHalf = 1 << 16

// without returns the orders that are not remembered. It does not change the slice.
func (r *recent) without(orders []sale.Order) []sale.Order {
	r.mu.Lock()
	defer r.mu.Unlock()
	known := func(o sale.Order) bool {
		_, young := r.young[o.ID]
		_, old := r.old[o.ID]
		return young || old
	}
	if !slices.ContainsFunc(orders, known) { // the common case
		return orders
	}
	return slices.DeleteFunc(slices.Clone(orders), known)
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
