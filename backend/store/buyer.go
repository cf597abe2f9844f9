package store

import (
	"context"
	"fmt"

	"sluice/backend/sale"
)

// recentSales is how many sales OrdersOfBuyer looks through for orders that are not cancelled: one step in an index each.
const recentSales = 500

// OrdersOfBuyer returns the newest orders of a buyer that are rows, up to limit, the oldest of them first. Those that are not cancelled are looked for in the 500
// newest sales only.
func (s *Store) OrdersOfBuyer(ctx context.Context, buyer string, limit int) ([]sale.Order, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	const columns = "orders.id, orders.sale_id, orders.buyer, orders.nth, orders.serial, orders.status, orders.due_at"
	var orders []sale.Order
	err := s.engine.direct().query(ctx, func(r row) error {
		o, err := scanOrder(r)
		orders = append(orders, o)
		return err
	}, `SELECT * FROM (
		SELECT * FROM (
			SELECT `+columns+` FROM (SELECT id FROM sales ORDER BY created_at DESC LIMIT $3) AS recent
				JOIN orders ON orders.sale_id = recent.id AND orders.buyer = $1 AND orders.status <> 'cancelled'
			UNION ALL
			SELECT * FROM (SELECT `+columns+` FROM orders WHERE buyer = $1 AND status = 'cancelled' ORDER BY id DESC LIMIT $2) AS gone
		) AS every ORDER BY id DESC LIMIT $2
	) AS newest ORDER BY id`, buyer, limit, recentSales)
	if err != nil {
		return nil, fmt.Errorf("order: orders of a buyer: %w", err)
	}
	return orders, nil
}
