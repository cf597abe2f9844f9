package sale

import "time"

// Status is how far an order has come.
type Status string

// The statuses of an order. Queued and Dead live in Redis, the others are rows.
const (
	StatusQueued    Status = "queued"    // accepted, not a row yet
	StatusCreated   Status = "created"   // a row
	StatusPaid      Status = "paid"      // a row, paid for
	StatusCancelled Status = "cancelled" // a row that holds no unit any more
	StatusDead      Status = "dead"      // failed too often; waits for a person and holds its unit
)

// Final reports whether the queue has done its part: the order is a row or waits for a person.
func (s Status) Final() bool { return s != StatusQueued }

// Order is one unit bought by one buyer.
type Order struct {
	ID     OrderID
	SaleID string
	Buyer  string
	Slot   int   // which of the buyer's per_buyer places in this sale it takes, from 1
	Serial int64 // its place in the sale's row of acceptances, from 1; never given twice within a sale
	Status Status
	DueAt  time.Time // when it is cancelled unless it is paid; zero: never, or it is not a row yet
}

// CreatedAt is when the order was accepted, to the second; it is read from the order id.
func (o Order) CreatedAt() time.Time { return o.ID.Time() }

// Outcome is the decision about one purchase request.
type Outcome int

// The outcomes. The zero value is not an outcome.
const (
	_             Outcome = iota
	Accepted              // a unit is taken and the order is queued
	Replayed              // the same request was accepted before: the same order, no second unit
	KeyReused             // the idempotency key belongs to another request
	AlreadyBought         // the buyer holds per_buyer units
	SoldOut
	NotOpen // opens later
	SalePaused
	SaleClosed
	UnknownSale // Redis does not hold this sale
	QueueFull   // more accepted orders wait for the database than may; nothing is decided about the sale
)

var outcomeNames = [...]string{"", "accepted", "replayed", "key_reused", "already_bought", "sold_out", "not_open", "paused", "closed", "unknown_sale", "queue_full"}

// String is the outcome's name in metrics, logs and Redis scripts.
func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomeNames) {
		return "invalid"
	}
	return outcomeNames[o]
}
