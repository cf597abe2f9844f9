package store

import (
	"context"
	"encoding/json"
	"fmt"

	"sluice/backend/sale"
)

// Credit is one line of the ledger of points.
type Credit struct {
	OrderID sale.OrderID
	Status  sale.Status // created credits; cancelled takes back whatever the order is or will be credited
	Buyer   string
	Points  int64 // of a created order
}

// CreditPoints writes lines of the ledger, in one transaction. A line whose order and status are there already changes nothing, whatever it says, so every event may come
// any number of times.
func (s *Store) CreditPoints(ctx context.Context, credits []Credit) error {
	type line struct {
		Order  int64  `json:"o"`
		Kind   int    `json:"k"`
		Buyer  string `json:"b"`
		Points int64  `json:"p"`
	}
	lines := make([]line, len(credits))
	for i, c := range credits {
		lines[i] = line{int64(c.OrderID), kindCreated, storable(c.Buyer), c.Points}
		if c.Status == sale.StatusCancelled {
			lines[i].Kind, lines[i].Points = kindCancelled, 0
		}
	}
	list, err := json.Marshal(lines)
	if err == nil {
		err = s.change(ctx, func(ctx context.Context, db conn) error {
			_, err := db.exec(ctx, "INSERT INTO points (order_id, kind, buyer, points) "+s.engine.dialect().credits+" ON CONFLICT (order_id, kind) DO NOTHING", string(list))
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("order: credit points: %w", err)
	}
	return nil
}

// Points is how many points a buyer has: those of the orders that are not cancelled.
func (s *Store) Points(ctx context.Context, buyer string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var n int64
	if err := one(ctx, s.engine.direct(), []any{&n}, `SELECT CAST(coalesce(sum(points), 0) AS bigint) FROM points AS credit WHERE buyer = $1 AND kind = 1
		AND NOT EXISTS (SELECT 1 FROM points AS back WHERE back.order_id = credit.order_id AND back.kind = 3)`, buyer); err != nil {
		return 0, fmt.Errorf("order: points: %w", err)
	}
	return n, nil
}
