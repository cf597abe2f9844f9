package client

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"time"
)

// Status is the state of an order.
type Status string

// The statuses of an order.
const (
	Queued    Status = "queued"    // accepted, not in the database yet
	Created   Status = "created"   // in the database, not paid
	Paid      Status = "paid"      // in the database and paid
	Cancelled Status = "cancelled" // holds no unit
	Dead      Status = "dead"      // could not be written; holds its unit until an admin retries or cancels it
)

// Accepted is the result of a purchase. The order survives a crash of any server process.
type Accepted struct {
	OrderID string `json:"order_id"` // a decimal number above 2^53
	SaleID  string `json:"sale_id"`
	Status  Status `json:"status"` // Queued

	Replayed bool   `json:"-"` // an earlier request with the same key was accepted
	Key      string `json:"-"` // the Idempotency-Key of the purchase
}

// Order is an order of the buyer.
type Order struct {
	OrderID   string     `json:"order_id"`
	SaleID    string     `json:"sale_id"`
	Status    Status     `json:"status"`
	CreatedAt time.Time  `json:"created_at"`        // time of acceptance
	PayBy     *time.Time `json:"pay_by,omitempty"`  // deadline of the payment, for a Created order of a sale with a hold
	Expired   bool       `json:"expired,omitempty"` // Cancelled because it was not paid by its deadline
}

// Buy buys one unit. The key identifies the purchase for 24 hours. Further calls with the same key, also from another
// process, return the same order, even if it was cancelled, and buy no second unit. Store the key before the call if
// your process may crash. If the key is empty, Buy generates one for this call.
//
// The error matches AlreadyBought, SoldOut, SaleNotOpen, SaleClosed or SalePaused if the purchase was rejected, and
// NotFound if the sale does not exist. After an error that wraps ErrNoResponse or the error of the context, that is a
// Problem with a status of 500 or more, or that reports a response that cannot be decoded, the unit may have been
// bought: repeat the call with the same key. Accepted.Key has the key also after an error.
func (c *Client) Buy(ctx context.Context, saleID, key string) (Accepted, error) {
	if key == "" {
		key = rand.Text()
	}
	a := Accepted{Key: key}
	path := "/v1/sales/" + url.PathEscape(saleID) + "/orders"
	header, err := c.send(ctx, Request{Method: http.MethodPost, Path: path, Key: key}, &a)
	a.Replayed = header.Get("Idempotency-Replayed") == "true"
	return a, err
}

// Order returns an order of this buyer. The error matches NotFound for an order of another buyer.
func (c *Client) Order(ctx context.Context, id string) (Order, error) {
	return get[Order](ctx, &c.conn, "/v1/orders/"+url.PathEscape(id))
}

// Orders returns the orders of this buyer in a sale, oldest first: all that are not Cancelled, and at most 20 that are.
// The error matches NotFound if the sale does not exist.
func (c *Client) Orders(ctx context.Context, saleID string) ([]Order, error) {
	const path = "/v1/me/orders"
	var list struct{ Orders []Order }
	err := c.Do(ctx, Request{Method: http.MethodGet, Path: path, Query: url.Values{"sale": {saleID}}}, &list)
	return items(path, list.Orders, err)
}

// hold is the duration for which the server delays its response to WaitOrder. Its limit is 30 s.
const hold = 25 * time.Second

// WaitOrder polls an order until its status is not Queued. After an error, such as that of the context, it also returns
// the latest known order, which is zero before the first response.
func (c *Client) WaitOrder(ctx context.Context, id string) (o Order, err error) {
	for {
		var now Order
		path := "/v1/orders/" + url.PathEscape(id)
		query := url.Values{"wait": {hold.String()}}
		if err = c.Do(ctx, Request{Method: http.MethodGet, Path: path, Query: query, hold: hold}, &now); err != nil {
			return o, err
		}
		if o = now; o.Status != Queued {
			return o, nil
		}
		// A server without capacity for waiting requests responds immediately.
		if err := c.sleep(ctx, c.retry.InitialDelay/2+time.Duration(c.jitter()*float64(c.retry.InitialDelay/2))); err != nil {
			return o, err
		}
	}
}

// Points returns the points of the buyer.
func (c *Client) Points(ctx context.Context) (int64, error) {
	balance, err := get[struct{ Points int64 }](ctx, &c.conn, "/v1/me/points")
	return balance.Points, err
}
