package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Price is in the currency's minor unit, such as cents.
type Price struct {
	Amount   int64  `json:"amount"`
	Currency string `json:"currency"` // ISO 4217
}

// State is what a sale is doing.
type State string

// The states.
const (
	Scheduled State = "scheduled"
	Open      State = "open"
	Paused    State = "paused"
	Sold      State = "sold_out"
	Closed    State = "closed"
)

// Sale is a sale as the public sees it.
type Sale struct {
	ID       string     `json:"id"`
	Title    string     `json:"title"`
	Price    Price      `json:"price"`
	Stock    int64      `json:"stock"` // sold units included
	Left     int64      `json:"left"`  // units nobody holds
	PerBuyer int        `json:"per_buyer"`
	State    State      `json:"state"`
	OpensAt  time.Time  `json:"opens_at"`
	ClosesAt *time.Time `json:"closes_at"` // nil: no end
}

// Sales are all of them, the earliest opening first.
func (c *Client) Sales(ctx context.Context) ([]Sale, error) {
	var answer struct {
		Sales []Sale `json:"sales"`
	}
	err := c.Do(ctx, Request{Method: http.MethodGet, Path: "/v1/sales"}, &answer)
	return answer.Sales, err
}

// Sale is one of them. The error matches NotFound where there is none.
func (c *Client) Sale(ctx context.Context, id string) (s Sale, err error) {
	err = c.Do(ctx, Request{Method: http.MethodGet, Path: "/v1/sales/" + url.PathEscape(id)}, &s)
	return s, err
}
