// Package queue moves accepted orders from Redis to whoever writes them into the order store, and loses none: messages are
// leased in batches, a lease that runs out puts them back, and what fails too often is kept as a dead letter until a person
// decides. A message may be delivered more than once; the order store makes the second time a no-op.
//
// The package never decides whether an order is accepted, and never trims or drops a message.
package queue

import (
	"crypto/rand"
	"encoding/base64"
	"strings"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// Message is one accepted order on its way to the order store.
type Message = keyspace.Message

// MaxBatch is the most messages that one batch holds; asking for more gives this many.
const MaxBatch = 1000

// Batch is what one lease covers, oldest message first. Without messages it is no lease, and its ID must not be used.
type Batch struct {
	ID       string
	Messages []Message
}

// NewBatchID makes an id that no other batch has: 72 random bits, safe in a Redis key.
func NewBatchID() string {
	var b [9]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the program instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Failure says that one message of a batch could not be worked on.
type Failure struct {
	ID        sale.OrderID
	Reason    string // for the operator; kept as one line of at most MaxReason bytes
	Permanent bool   // no later attempt can succeed: the message dies at once
}

// MaxReason is how many bytes of a failure's reason are kept.
const MaxReason = 500

// Stats counts the queue at one instant.
type Stats struct {
	Ready   int64 // nobody has taken them
	Delayed int64 // wait for their next attempt
	Leased  int64 // messages in batches
	Leases  int64 // batches
	Dead    int64 // dead letters
	// OldestAge is how long ago the oldest message was accepted, to the second: of the next ready one, the next delayed one and the first one
	// of every batch. 0 when there is none.
	OldestAge time.Duration
}

// Attempt is one failure in the history of a message.
type Attempt struct {
	At     time.Time // millisecond precision, UTC
	Reason string
}

// DeadLetter is a message that failed too often. It still holds its unit of the sale's stock, unless it is unbacked.
type DeadLetter struct {
	Key        string  // its name in the queue: the order id, or raw:<hash> for a text that is no message
	Message    Message // zero when Raw is set
	Raw        []byte  // a text found on the queue that is no message; holds no unit of anything
	Reason     string
	History    []Attempt // oldest first
	Crashes    int       // how often its lease ran out
	DiedAt     time.Time // millisecond precision, UTC
	Cancelling bool      // somebody has begun to cancel it; it cannot be retried any more
	Unbacked   bool      // it holds no unit and no place: Redis had lost the order, and others had them when it was found again
	Generation int64     // of the Redis in which BeginCancel has found it (see order.AtGeneration); 0: it has none, and from any other method
}

// DeadQuery asks for one page of dead letters, the longest dead first.
type DeadQuery struct {
	SaleID string // only this sale; empty: all, and the texts that are no messages
	Limit  int    // at most this many, 1 to 1000; 0 means 100
	After  string // the cursor that came with the page before; empty: from the start

	Because    string    // only those whose reason has this text in it, in upper or lower case; empty: all
	DiedAfter  time.Time // not before it, to the millisecond; zero: all
	DiedBefore time.Time // before it, to the millisecond; zero: all
}

// selects tells whether a letter is asked for, wherever the page is.
func (q *DeadQuery) selects(d *DeadLetter) bool {
	return (q.SaleID == "" || d.Message.SaleID == q.SaleID) && (q.Because == "" || strings.Contains(strings.ToLower(d.Reason), strings.ToLower(q.Because))) &&
		!d.DiedAt.Before(q.DiedAfter) && (q.DiedBefore.IsZero() || d.DiedAt.Before(q.DiedBefore))
}
