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

// Rule defines the points of an order: Points for each full Per of the currency's minor unit. The zero value gives
// none.
type Rule struct{ Points, Per int64 }

// DefaultRule is a point for each full hundred cents.
const DefaultRule = "1/100"

const maxRule = 1_000_000

// ParseRule reads "1/100": one point for each full 100 of the minor unit. The error is one line.
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
