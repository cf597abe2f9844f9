package client

import (
	"context"
	"iter"
	"net/url"
	"time"
)

// AdminOrder is an order in the database, with the fields of the admin API.
type AdminOrder struct {
	OrderID     string     `json:"order_id"`
	SaleID      string     `json:"sale_id"`
	Buyer       string     `json:"buyer"`
	Status      Status     `json:"status"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
	PayBy       *time.Time `json:"pay_by,omitempty"`
	Reference   string     `json:"reference,omitempty"` // the provider's id of the payment
	CancelledBy string     `json:"cancelled_by,omitempty"`
	Reason      string     `json:"reason,omitempty"` // reason for the cancellation
	Returning   bool       `json:"returning"`        // cancelled, and the unit is not back in stock yet
}

// OrderFilter selects orders. The zero value selects all.
type OrderFilter struct {
	SaleID string
	Status Status // Created, Paid or Cancelled
}

// Orders returns the orders in the database by id, and requests further pages as they are needed. An error ends the
// sequence.
func (a *Admin) Orders(ctx context.Context, f OrderFilter) iter.Seq2[AdminOrder, error] {
	query := url.Values{}
	setIf(query, "sale", f.SaleID)
	setIf(query, "status", string(f.Status))
	return pages[AdminOrder](ctx, a, "/admin/v1/orders", query)
}

// Order returns an order in the database.
func (a *Admin) Order(ctx context.Context, id string) (AdminOrder, error) {
	return get[AdminOrder](ctx, &a.conn, "/admin/v1/orders/"+url.PathEscape(id))
}

// CancelOrder cancels an unpaid order, returns its unit to stock and lets the buyer buy again. Repeated calls have no
// further effect. The error matches Conflict if the order is paid or its sale is archived.
func (a *Admin) CancelOrder(ctx context.Context, id, reason string) (AdminOrder, error) {
	return post[AdminOrder](ctx, &a.conn, "/admin/v1/orders/"+url.PathEscape(id)+"/cancel", reasonBody(reason))
}

// DeadLetter is an accepted order that could not be written to the database.
type DeadLetter struct {
	Key        string    `json:"key"` // the argument of RetryDead and CancelDead
	OrderID    string    `json:"order_id,omitempty"`
	SaleID     string    `json:"sale_id,omitempty"`
	Buyer      string    `json:"buyer,omitempty"`
	Message    string    `json:"message,omitempty"` // encoded: order id, sale, slot of the buyer, serial, buyer
	Raw        string    `json:"raw,omitempty"`     // the text of an entry that is not an order and holds no unit
	Reason     string    `json:"reason"`
	Attempts   int       `json:"attempts"` // the length of History
	History    []Attempt `json:"history"`  // oldest first
	Crashes    int       `json:"crashes"`  // workers that crashed while processing it
	DiedAt     time.Time `json:"died_at"`
	Cancelling bool      `json:"cancelling"` // a cancellation has started
	Units      int       `json:"units"`      // units that it holds
	Unbacked   bool      `json:"unbacked"`   // holds no unit, because Redis lost it
}

// Attempt is a failed attempt to write an order to the database.
type Attempt struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
}

// Settled is the result of retrying or cancelling a dead letter.
type Settled struct {
	Key       string `json:"key"`
	OrderID   string `json:"order_id,omitempty"`
	SaleID    string `json:"sale_id,omitempty"`
	Status    string `json:"status"`
	GivenBack bool   `json:"given_back"` // the unit is back in stock
}

// DeadLetters returns the dead letters of a sale, or all if saleID is empty, oldest first, and requests further pages
// as they are needed. An error ends the sequence. If shards are unavailable, it has the dead letters of the others, and
// then an error that matches Unavailable.
func (a *Admin) DeadLetters(ctx context.Context, saleID string) iter.Seq2[DeadLetter, error] {
	query := url.Values{}
	setIf(query, "sale", saleID)
	return pages[DeadLetter](ctx, a, "/admin/v1/dead", query)
}

// RetryDead requeues a dead letter. Repeated calls have no further effect. The status is "queued", or that of the order
// if it is in the database already. The error matches Conflict if the dead letter is being cancelled, if it holds no
// unit and none is left for it, or if its sale is archived.
func (a *Admin) RetryDead(ctx context.Context, key, reason string) (Settled, error) {
	return post[Settled](ctx, &a.conn, "/admin/v1/dead/"+url.PathEscape(key)+"/retry", reasonBody(reason))
}

// CancelDead cancels a dead letter, returns its unit to stock and lets the buyer buy again. Repeated calls have no
// further effect. The status is "cancelled"; "dropped" if the database cannot store the order; or the status of the
// order if it is in the database after all. The error matches Conflict if the dead letter is unreadable.
func (a *Admin) CancelDead(ctx context.Context, key, reason string) (Settled, error) {
	return post[Settled](ctx, &a.conn, "/admin/v1/dead/"+url.PathEscape(key)+"/cancel", reasonBody(reason))
}

func reasonBody(reason string) map[string]string { return map[string]string{"reason": reason} }

func setIf(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}
