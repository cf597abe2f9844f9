package client

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"time"
)

// Status is what has become of an order.
type Status string

// The statuses.
const (
	Queued    Status = "queued"    // accepted, and not in the database yet; it will be
	Created   Status = "created"   // in the database
	Paid      Status = "paid"      //
	Cancelled Status = "cancelled" // it holds no unit any more
	Dead      Status = "dead"      // it could not be written; a person decides, and it holds its unit until then
)

// Accepted is the answer to a purchase. The order will be written, whatever crashes.
type Accepted struct {
	OrderID string `json:"order_id"` // decimal; it exceeds 2^53
	SaleID  string `json:"sale_id"`
	Status  Status `json:"status"` // Queued

	Replayed bool   `json:"-"` // the same purchase had been accepted before
	Key      string `json:"-"` // what it was asked with
}

// Order is an order as its buyer sees it.
type Order struct {
	OrderID   string     `json:"order_id"`
	SaleID    string     `json:"sale_id"`
	Status    Status     `json:"status"`
	CreatedAt time.Time  `json:"created_at"` // when it was accepted
	PayBy     *time.Time `json:"pay_by"`     // of a Created one whose sale has a hold: it is cancelled then unless it is paid
}

// Buy buys one unit. The key names this purchase: asking again with the same one, also from another process and for 24 hours, gets the same order and takes no
// second unit. Keep it where a crash leaves it, or leave it empty to have one made for this call. The error matches AlreadyBought, SoldOut, SaleNotOpen,
// SaleClosed and SalePaused; one that wraps ErrNoAnswer, or the context's, does not tell whether a unit was bought: ask again with the same key.
func (c *Client) Buy(ctx context.Context, saleID, key string) (Accepted, error) {
	if key == "" {
		key = rand.Text()
	}
	a := Accepted{Key: key}
	header, err := c.send(ctx, Request{Method: http.MethodPost, Path: "/v1/sales/" + url.PathEscape(saleID) + "/orders", Key: key}, &a)
	a.Replayed = header.Get("Idempotency-Replayed") == "true"
	return a, err
}

// Order is an order of this buyer. The error matches NotFound for one of somebody else.
func (c *Client) Order(ctx context.Context, id string) (o Order, err error) {
	err = c.Do(ctx, Request{Method: http.MethodGet, Path: "/v1/orders/" + url.PathEscape(id)}, &o)
	return o, err
}

// hold is how long one request of WaitOrder is held back; the server takes 30 s at most.
const hold = 25 * time.Second

// WaitOrder looks at an order until it is not Queued any more, or the context ends; then it returns the order as it was last seen, with the context's error.
func (c *Client) WaitOrder(ctx context.Context, id string) (o Order, err error) {
	for {
		var now Order
		err = c.Do(ctx, Request{Method: http.MethodGet, Path: "/v1/orders/" + url.PathEscape(id), Query: url.Values{"wait": {hold.String()}}, hold: hold}, &now)
		if err != nil {
			return o, err
		}
		if o = now; o.Status != Queued {
			return o, nil
		}
		// A server that has no room for more who wait answers at once.
		if err := c.sleep(ctx, c.retry.First/2+time.Duration(c.jitter()*float64(c.retry.First/2))); err != nil {
			return o, err
		}
	}
}

// Points are how many the buyer has.
func (c *Client) Points(ctx context.Context) (int64, error) {
	var answer struct {
		Points int64 `json:"points"`
	}
	err := c.Do(ctx, Request{Method: http.MethodGet, Path: "/v1/me/points"}, &answer)
	return answer.Points, err
}
