// Package points credits buyers with points for their orders. It is a consumer group of package events and stores the
// credits in SQL. Each order is credited once, and a cancelled one counts nothing, regardless of the order of its
// events and of repeated deliveries.
package points

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// Group is the name of the consumer group.
const Group = "points"

// Rule defines the points of an order: Points for every Per of the minor units, such as cents, in its price. An
// incomplete Per gives none, and the zero value gives none.
type Rule struct{ Points, Per int64 }

// DefaultRule is a point for each full hundred cents.
const DefaultRule = "1/100"

const maxRule = 1_000_000

// ParseRule reads a rule such as "1/100": one point for every 100 minor units. The error is one line.
func ParseRule(text string) (Rule, error) {
	left, right, _ := strings.Cut(text, "/")
	n, err := strconv.ParseInt(left, 10, 64)
	per, err2 := strconv.ParseInt(right, 10, 64)
	if err != nil || err2 != nil || n < 0 || n > maxRule || per < 1 || per > maxRule {
		return Rule{}, fmt.Errorf("%q is not a points rule: want POINTS/CENTS such as 1/100, each at most %d", text, maxRule)
	}
	return Rule{n, per}, nil
}

// Of returns the points of an order with this price, at most 2^40.
func (r Rule) Of(p sale.Price) int64 {
	if r.Per == 0 || r.Points == 0 {
		return 0
	}
	full := p.Amount / r.Per
	const most = int64(1) << 40 // sums of these stay far below the maximum of bigint
	if full > most/r.Points {
		return most
	}
	return full * r.Points
}

// Handler returns the group's handler.
func Handler(db *Store, rule Rule) events.Handler {
	return func(ctx context.Context, batch []events.Event) error {
		credits := make([]Credit, 0, len(batch))
		for _, e := range batch {
			if e.Buyer == "" {
				return fmt.Errorf("points: %w: order %s has no buyer", events.ErrPermanent, e.OrderID)
			}
			switch e.Type {
			case events.Created:
				credits = append(credits, Credit{e.OrderID, store.OutboxCreated, store.Text(e.Buyer), rule.Of(e.Price)})
			case events.Cancelled:
				credits = append(credits, Credit{e.OrderID, store.OutboxCancelled, store.Text(e.Buyer), 0})
			}
		}
		if len(credits) == 0 {
			return nil
		}
		return db.Record(ctx, credits)
	}
}

// Store keeps the points of buyers. It is safe for concurrent use.
type Store struct{ db *store.DB }

// NewStore returns the Store in db.
func NewStore(db *store.DB) *Store { return &Store{db} }

// Credit is one entry of an order, and the JSON of its row.
type Credit struct {
	OrderID sale.OrderID `json:"order_id"`
	// Kind is store.OutboxCreated, or store.OutboxCancelled, which revokes the credit of the order, even one that is
	// recorded later.
	Kind   int    `json:"kind"`
	Buyer  string `json:"buyer"`
	Points int64  `json:"points"` // 0 if cancelled
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
