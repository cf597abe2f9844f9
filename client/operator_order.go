package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// OrderRow is an order that is in the database, as operators see it.
type OrderRow struct {
	OrderID     string     `json:"order_id"`
	SaleID      string     `json:"sale_id"`
	Buyer       string     `json:"buyer"`
	Status      Status     `json:"status"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
	PayBy       *time.Time `json:"pay_by"`
	Reference   string     `json:"reference"` // the provider's name of the payment
	CancelledBy string     `json:"cancelled_by"`
	Reason      string     `json:"reason"`    // why it was cancelled
	Returning   bool       `json:"returning"` // cancelled, and its unit is on its way back
}

// OrderFilter says which orders; the zero value says all.
type OrderFilter struct {
	SaleID string
	Status Status // Created, Paid or Cancelled
}

// Orders are those that are in the database, by id, page after page as they are read. An error ends them.
func (o *Operator) Orders(ctx context.Context, f OrderFilter) iter.Seq2[OrderRow, error] {
	query := url.Values{}
	set(query, "sale", f.SaleID)
	set(query, "status", string(f.Status))
	return pages[OrderRow](ctx, o, "/admin/v1/orders", "orders", query)
}

// OrderRow is one of them. The error matches NotFound where there is none in the database.
func (o *Operator) OrderRow(ctx context.Context, id string) (r OrderRow, err error) {
	err = o.Do(ctx, Request{Method: http.MethodGet, Path: "/admin/v1/orders/" + url.PathEscape(id)}, &r)
	return r, err
}

// CancelOrder cancels one that is not paid: its unit is sold again, and its buyer may buy again; once, however often it is asked.
func (o *Operator) CancelOrder(ctx context.Context, id, reason string) (r OrderRow, err error) {
	err = o.Do(ctx, Request{Method: http.MethodPost, Path: "/admin/v1/orders/" + url.PathEscape(id) + "/cancel", Body: because(reason)}, &r)
	return r, err
}

// DeadLetter is an accepted order that could not be written.
type DeadLetter struct {
	Key        string    `json:"key"` // what RetryDead and CancelDead take
	OrderID    string    `json:"order_id"`
	SaleID     string    `json:"sale_id"`
	Buyer      string    `json:"buyer"`
	Reason     string    `json:"reason"`
	Attempts   int       `json:"attempts"`
	Crashes    int       `json:"crashes"` // how often its worker died
	DiedAt     time.Time `json:"died_at"`
	Cancelling bool      `json:"cancelling"` // somebody has begun to cancel it
	Units      int       `json:"units"`      // of the stock that it still holds
	Unbacked   bool      `json:"unbacked"`   // it holds none, since Redis had lost it
}

// Settled is what became of a dead letter.
type Settled struct {
	Key       string `json:"key"`
	OrderID   string `json:"order_id"`
	SaleID    string `json:"sale_id"`
	Status    string `json:"status"`
	GivenBack bool   `json:"given_back"` // its unit is on sale again
}

// DeadLetters are those of a sale, or all with "", the longest dead first, page after page as they are read. An error ends them.
func (o *Operator) DeadLetters(ctx context.Context, saleID string) iter.Seq2[DeadLetter, error] {
	query := url.Values{}
	set(query, "sale", saleID)
	return pages[DeadLetter](ctx, o, "/admin/v1/dead", "dead", query)
}

// RetryDead puts a dead letter back on the queue.
func (o *Operator) RetryDead(ctx context.Context, key, reason string) (s Settled, err error) {
	err = o.Do(ctx, Request{Method: http.MethodPost, Path: "/admin/v1/dead/" + url.PathEscape(key) + "/retry", Body: because(reason)}, &s)
	return s, err
}

// CancelDead settles a dead letter for good: its unit, if it holds one, is sold again, and its buyer may buy again; once, however often it is asked. The status is
// "cancelled"; "dropped", if there can be no row of it; or that of the row which it had become all the same.
func (o *Operator) CancelDead(ctx context.Context, key, reason string) (s Settled, err error) {
	err = o.Do(ctx, Request{Method: http.MethodPost, Path: "/admin/v1/dead/" + url.PathEscape(key) + "/cancel", Body: because(reason)}, &s)
	return s, err
}

func because(reason string) map[string]string { return map[string]string{"reason": reason} }

func set(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

// pageSize is how much one page has.
const pageSize = 500

// pages reads a list page by page.
func pages[T any](ctx context.Context, o *Operator, path, list string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query.Set("limit", strconv.Itoa(pageSize))
		query.Del("after")
		for {
			var page page[T]
			page.list = list
			if err := o.Do(ctx, Request{Method: http.MethodGet, Path: path, Query: query}, &page); err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.items {
				if !yield(item, nil) {
					return
				}
			}
			if page.next == "" {
				return
			}
			query.Set("after", page.next)
		}
	}
}
