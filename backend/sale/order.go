package sale

import "time"

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

// Outcome is the decision about one purchase request: its name in metrics, logs and Redis scripts.
type Outcome string

// The outcomes. The zero value is not an outcome.
const (
	Accepted      Outcome = "accepted"       // a unit is reserved and the order is queued
	Replayed      Outcome = "replayed"       // the same request was accepted before: the same order, no second unit
	KeyReused     Outcome = "key_reused"     // the idempotency key was used for another request
	AlreadyBought Outcome = "already_bought" // the buyer holds per_buyer units
	SoldOut       Outcome = "sold_out"
	NotOpen       Outcome = "not_open" // the sale is scheduled
	SalePaused    Outcome = "paused"
	SaleClosed    Outcome = "closed"
	UnknownSale   Outcome = "unknown_sale" // the sale is not in Redis
	QueueFull     Outcome = "queue_full"   // too many accepted orders wait for the database; nothing was decided about the sale
)

// Outcomes lists all outcomes.
var Outcomes = []Outcome{
	Accepted, Replayed, KeyReused, AlreadyBought, SoldOut, NotOpen, SalePaused, SaleClosed, UnknownSale, QueueFull,
}
