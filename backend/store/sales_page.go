package store

import (
	"context"
	"strings"

	"sluice/backend/sale"
)

// SalesQuery selects sales. The zero value selects all.
type SalesQuery struct {
	Text  string     // a part of the id or the title; ASCII letters match in upper and lower case
	State sale.State // by the rows in SQL: a sale is sold out when all its units are rows
	After string     // id of a sale: only sales created before it; empty: from the newest
	Limit int        // see PageSize
}

// SalesPage returns one page of sales, newest first. If the sale After was removed, the page continues at the time of
// its creation, which is in the action log. The page is empty if the sale never existed.
func (s *Store) SalesPage(ctx context.Context, q SalesQuery) ([]SaleSummary, error) {
	var f Filter
	if q.After != "" {
		id := f.Arg(q.After)
		f.AddConstant("(created_at, id) < (coalesce((SELECT created_at FROM sales WHERE id = " + id + "), " +
			"(SELECT max(at) FROM admin_log WHERE target = " + id + " AND action = 'sale.create')), " + id + ")")
	}
	if q.Text != "" {
		text := f.Arg("%" + escapeLike.Replace(Text(q.Text)) + "%")
		f.AddConstant("(lower(id) LIKE lower(" + text + ") ESCAPE '!' OR lower(title) LIKE lower(" + text + ") ESCAPE '!')")
	}
	if q.State != "" {
		f.AddConstant("(" + stateCondition(q.State, s.Dialect().Now) + ")")
	}
	page := f.Page("created_at DESC, id DESC", q.Limit)
	return ViewRows(ctx, s.DB, "store: page of sales", scanSale, selectSales+page, f.Args...)
}

// escapeLike escapes the wildcards of LIKE.
var escapeLike = strings.NewReplacer("!", "!!", "%", "!%", "_", "!_")

// stateCondition is sale.Sale.StateAt as a condition on a row.
func stateCondition(state sale.State, now string) string {
	ended := "COALESCE(closes_at <= " + now + ", 1 = 0)"
	running := "switch = 'on' AND NOT " + ended
	switch state {
	case sale.StateClosed:
		return "switch = 'closed' OR " + ended
	case sale.StatePaused:
		return "switch = 'paused' AND NOT " + ended
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
	Sold  int64 // orders that are not cancelled
}

// Totals returns the totals of all sales, as of one instant.
func (s *Store) Totals(ctx context.Context) (Totals, error) {
	return ViewRow(ctx, s.DB, "store: totals", func(row Scanner) (t Totals, err error) {
		return t, row.Scan(&t.Sales, &t.Stock, &t.Sold)
	}, `SELECT count(*),
			CAST(COALESCE(sum(stock), 0) AS bigint), CAST(COALESCE(sum(sold), 0) AS bigint) FROM sales`)
}
