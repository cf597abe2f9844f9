package admission

import (
	"sync"

	"sluice/backend/sale"
)

// OrderCache maps orders to values. It holds the latest size orders, and up to size older ones. It is safe for
// concurrent use.
type OrderCache[V any] struct {
	mu            sync.Mutex
	size          int
	recent, older map[sale.OrderID]V
}

// NewOrderCache returns an empty OrderCache.
func NewOrderCache[V any](size int) *OrderCache[V] {
	return &OrderCache[V]{size: size, recent: map[sale.OrderID]V{}}
}

// Put adds or replaces an order.
func (c *OrderCache[V]) Put(id sale.OrderID, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.recent) >= c.size {
		c.older, c.recent = c.recent, map[sale.OrderID]V{}
	}
	c.recent[id] = value
}

// Get reports whether an order is cached, and returns its value.
func (c *OrderCache[V]) Get(id sale.OrderID) (value V, cached bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if value, cached = c.recent[id]; !cached {
		value, cached = c.older[id]
	}
	return value, cached
}
