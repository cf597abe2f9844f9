package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"sluice/backend/sale"
)

// SalesQuery selects sales. The zero value selects all.
type SalesQuery struct {
	Text  string     // a part of the id or the title; ASCII letters in upper or lower case
	State sale.State // as SQL knows it: a sale is sold out when all its units are rows
	After string     // sales made before this one; empty: from the newest
	Limit int        // 1 to 1000; 0: 100
}

// SalesPage returns one page of sales with what is sold of them, the newest first. An After that is no sale ends the list.
func (s *Store) SalesPage(ctx context.Context, q SalesQuery) ([]Standing, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var f filter
	if q.After != "" {
		f.add("(created_at, id) < (SELECT created_at, id FROM sales WHERE id = ?)", q.After)
	}
	if q.Text != "" {
		f.add("(lower(id) LIKE lower(?) ESCAPE '!' OR lower(title) LIKE lower($"+strconv.Itoa(len(f.args)+1)+") ESCAPE '!')", "%"+likeText.Replace(storable(q.Text))+"%")
	}
	if q.State != "" {
		f.conditions = append(f.conditions, "("+s.inState(q.State)+")")
	}
	where := ""
	if len(f.conditions) > 0 {
		where = " WHERE " + f.where()
	}
	f.args = append(f.args, pageOf(q.Limit))
	var standings []Standing
	err := s.engine.direct().query(ctx, func(r row) error {
		found, sold, err := scanSale(r)
		standings = append(standings, Standing{found, sold})
		return err
	}, "SELECT "+saleColumns+" FROM sales"+where+" ORDER BY created_at DESC, id DESC LIMIT $"+strconv.Itoa(len(f.args)), f.args...)
	if err != nil {
		return nil, fmt.Errorf("order: page of sales: %w", err)
	}
	return standings, nil
}

// likeText makes a text mean itself in LIKE.
var likeText = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")

// inState is the condition for what sale.Sale.StateAt calls so.
func (s *Store) inState(state sale.State) string {
	now := s.engine.dialect().now
	closed := "switch = 'closed' OR closes_at <= " + now
	running := "NOT (switch <> 'on' OR COALESCE(closes_at <= " + now + ", 1 = 0))"
	switch state {
	case sale.StateClosed:
		return closed
	case sale.StatePaused:
		return "switch = 'paused' AND NOT COALESCE(closes_at <= " + now + ", 1 = 0)"
	case sale.StateScheduled:
		return running + " AND opens_at > " + now
	case sale.StateSoldOut:
		return running + " AND opens_at <= " + now + " AND sold >= stock"
	case sale.StateOpen:
		return running + " AND opens_at <= " + now + " AND sold < stock"
	}
	return "1 = 0"
}

// Totals adds up all sales.
type Totals struct {
	Sales int64
	Stock int64
	Sold  int64 // orders that are rows and not cancelled
}

// Totals counts all sales, at one instant.
func (s *Store) Totals(ctx context.Context) (Totals, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var t Totals
	err := one(ctx, s.engine.direct(), []any{&t.Sales, &t.Stock, &t.Sold},
		"SELECT count(*), CAST(COALESCE(sum(stock), 0) AS bigint), CAST(COALESCE(sum(sold), 0) AS bigint) FROM sales")
	if err != nil {
		return Totals{}, fmt.Errorf("order: totals: %w", err)
	}
	return t, nil
}
