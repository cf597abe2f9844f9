package sale

import (
	"slices"
	"time"
)

// Status is the progress of an order.
type Status string

// The statuses of an order. Queued and dead orders are in Redis, the others are rows in SQL.
const (
	StatusQueued    Status = "queued"    // accepted, not a row yet
	StatusCreated   Status = "created"   // a row, unpaid
	StatusPaid      Status = "paid"      // a row, paid
	StatusCancelled Status = "cancelled" // a row that holds no unit
	StatusDead      Status = "dead"      // failed permanently; holds its unit until an admin decides
)

// Final reports whether the queue has finished with the order: it is a row or a dead letter.
func (s Status) Final() bool { return s != StatusQueued }

// Order is one unit bought by one buyer. Its JSON is that of an archive (package archive).
type Order struct {
	ID      OrderID   `json:"order_id,string"`
	SaleID  string    `json:"sale_id"`
	Buyer   string    `json:"buyer"`
	Slot    int       `json:"nth"`    // the buyer's slot in the sale, from 1 to PerBuyer; free again after a cancellation
	Serial  int64     `json:"serial"` // of the acceptance within the sale, from 1; unique until Redis is rebuilt
	Status  Status    `json:"status"`
	DueAt   time.Time `json:"due_at,omitzero"` // end of its hold; zero: there is no hold, or it is not a row yet
	Expired bool      `json:"-"`               // a row that was cancelled because its hold ended
}

// CreatedAt returns when the order was accepted, to the second. The time is part of the order id.
func (o Order) CreatedAt() time.Time { return o.ID.Time() }

// Outcome is the decision about one purchase request.
type Outcome int

// The outcomes. The zero value is not an outcome.
const (
	_             Outcome = iota
	Accepted              // a unit is reserved and the order is queued
	Replayed              // the same request was accepted before: the same order, no second unit
	KeyReused             // the idempotency key was used for another request
	AlreadyBought         // the buyer holds per_buyer units
	SoldOut
	NotOpen // the sale is scheduled
	SalePaused
	SaleClosed
	UnknownSale // the sale is not in Redis
	QueueFull   // too many accepted orders wait for the database; nothing was decided about the sale
)

var outcomeNames = [...]string{
	"",
	"accepted",
	"replayed",
	"key_reused",
	"already_bought",
	"sold_out",
	"not_open",
	"paused",
	"closed",
	"unknown_sale",
	"queue_full",
}

// String returns the outcome's name in metrics, logs and Redis scripts.
func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomeNames) {
		return "invalid"
	}
	return outcomeNames[o]
}

// ParseOutcome is the inverse of String. ok is false for a text that is not the name of an outcome.
func ParseOutcome(name string) (o Outcome, ok bool) {
	i := max(slices.Index(outcomeNames[:], name), 0)
	return Outcome(i), i > 0
}
