package points

import (
	"context"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// Store keeps the points of buyers. It is safe for concurrent use.
type Store struct{ db *store.DB }

// NewStore returns the Store in db.
func NewStore(db *store.DB) *Store { return &Store{db} }

// Credit is one entry of an order, and the JSON of its row.
type Credit struct {
	OrderID sale.OrderID `json:"order_id"`
	Kind    int          `json:"kind"` // store.OutboxCreated, or store.OutboxCancelled, which revokes also a later credit
	Buyer   string       `json:"buyer"`
	Points  int64        `json:"points"` // 0 if cancelled
}

// Record stores entries in one transaction. It is idempotent: the first entry of an order and kind stays.
func (s *Store) Record(ctx context.Context, credits []Credit) error {
	_, err := store.UpdateRows(ctx, s.db, "points: record",
		"INSERT INTO points (order_id, kind, buyer, points) SELECT order_id, kind, buyer, points FROM ("+
			s.db.Dialect().Records("$1", "order_id bigint, kind smallint, buyer text, points bigint")+`) AS credit
		WHERE true ORDER BY order_id, kind ON CONFLICT (order_id, kind) DO NOTHING`, store.JSON(credits))
	return err
}

// Balance returns a buyer's points: those of the orders that are not cancelled.
func (s *Store) Balance(ctx context.Context, buyer string) (int64, error) {
	return store.ViewRow(ctx, s.db, "points: balance", store.Column[int64], `
		SELECT CAST(coalesce(sum(points), 0) AS bigint) FROM points AS credit
		WHERE buyer = $1 AND kind = 1 AND NOT EXISTS (SELECT 1 FROM points AS revoked
			WHERE revoked.order_id = credit.order_id AND revoked.kind = 3)`, buyer)
}
