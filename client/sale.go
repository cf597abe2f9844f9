package client

import (
	"context"
	"net/url"
	"time"
)

// Price is an amount of money.
type Price struct {
	Amount   int64  `json:"amount"`   // in the minor unit of the currency, such as cents
	Currency string `json:"currency"` // ISO 4217
}

// State is the state of a sale.
type State string

// The states of a sale.
const (
	Scheduled State = "scheduled"
	Open      State = "open"
	Paused    State = "paused"
	Sold      State = "sold_out"
	Closed    State = "closed"
)

// Sale is a sale with the fields of the public API.
type Sale struct {
	ID       string     `json:"id"`
	Title    string     `json:"title"`
	Price    Price      `json:"price"`
	Stock    int64      `json:"stock"` // including sold units
	Left     int64      `json:"left"`  // units in stock
	PerBuyer int        `json:"per_buyer"`
	State    State      `json:"state"`
	OpensAt  time.Time  `json:"opens_at"`
	ClosesAt *time.Time `json:"closes_at"` // nil: no end
}

// Sales returns all sales, earliest opening first.
func (c *Client) Sales(ctx context.Context) ([]Sale, error) {
	const path = "/v1/sales"
	list, err := get[struct{ Sales []Sale }](ctx, &c.conn, path)
	return items(path, list.Sales, err)
}

// Sale returns a sale. The error matches NotFound if it does not exist.
func (c *Client) Sale(ctx context.Context, id string) (Sale, error) {
	return get[Sale](ctx, &c.conn, "/v1/sales/"+url.PathEscape(id))
}
