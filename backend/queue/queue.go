// Package queue is the reliable queue between admission and the workers: a list or a stream in Redis for each shard.
// Workers lease messages in batches. A lease that expires is requeued, and a message that fails too often is kept as a
// dead letter until an admin retries or cancels it. Delivery is at least once; the store makes the second write of an
// order a no-op.
//
// The package does not decide purchases, and it never drops a message.
package queue

import (
	"crypto/rand"
	"errors"
	"strconv"
	"strings"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// Message is one accepted order that is not in SQL yet.
type Message = keyspace.Message

// MaxBatch is the maximum number of messages in a batch. Larger limits are reduced to it.
const MaxBatch = 1000

// Batch holds the messages of one lease, oldest first. A Batch without messages is not leased and has no valid ID.
type Batch struct {
	ID       string
	Messages []Message
}

// Consumer is a registered consumer, which leases batches one after the other (List.Register).
type Consumer string

// BatchID returns the id of batch n, which is at least 1. Of two batches, the later one has the larger number.
func (c Consumer) BatchID(n int) string { return string(c) + "-" + strconv.Itoa(n) }

// NewConsumerName returns a unique random name of characters that are safe in a Redis key.
func NewConsumerName() string { return rand.Text() }

// ErrUnregistered reports that Redis does not hold a consumer: Redis has lost data, or many consumers were registered
// since. Nothing has changed.
var ErrUnregistered = errors.New("the consumer is not registered")

// maxConsumers is the number of consumers that a shard keeps. A consumer that is removed although it is alive registers
// again.
const maxConsumers = 4096

// Failure reports that one message of a batch could not be stored.
type Failure struct {
	ID        sale.OrderID
	Reason    string // shown to admins; kept as one line of at most MaxReason bytes
	Permanent bool   // no retry can succeed: the message becomes a dead letter immediately
}

// MaxReason is the maximum length of a stored reason in bytes.
const MaxReason = 500

// Stats holds the message counts of a queue at one instant.
type Stats struct {
	Ready   int64 // waiting for a worker
	Delayed int64 // waiting for their next attempt
	Leased  int64 // messages in leased batches
	Leases  int64 // leased batches
	Dead    int64 // dead letters
	// OldestAge is the age in whole seconds of the oldest of these: the next ready message, the next delayed message and
	// the first message of each batch. It is 0 for an empty queue.
	OldestAge time.Duration
}

// waiting returns the number of orders that are neither rows nor dead.
func (s Stats) waiting() int64 { return s.Ready + s.Delayed + s.Leased }

// Attempt is one failure in the history of a message.
type Attempt struct {
	At     time.Time // millisecond precision, UTC
	Reason string
}

// DeadLetter is a message that failed too often, or a text that is not a message. It holds its unit of the sale's stock
// unless Unbacked is set.
type DeadLetter struct {
	Key        string  // the order id, or raw:<hash> for a text that is not a message
	Message    Message // zero when Raw is set
	Raw        []byte  // a text from the queue that is not a message; it holds no unit
	Reason     string
	History    []Attempt // oldest first
	Crashes    int       // number of expired leases
	DiedAt     time.Time // millisecond precision, UTC
	Cancelling bool      // BeginCancel was called; a retry is rejected
	Unbacked   bool      // it holds no unit and no slot: Redis lost the order, and both were taken before it was restored
	Generation int64     // set by BeginCancel: the generation of the Redis data, see store.WithGeneration; 0: none
}

// DeadQuery selects a page of dead letters, ordered by DiedAt.
type DeadQuery struct {
	SaleID string // only this sale; empty: all sales and the texts that are not messages
	Limit  int    // page size, 1 to 1000; 0 means 100
	After  string // cursor of the previous page; empty: first page

	ErrorContains string    // only reasons that contain this text, ignoring case; empty: all
	DiedAfter     time.Time // at or after, in milliseconds; zero: all
	DiedBefore    time.Time // before, in milliseconds; zero: all
}

// selects reports whether d matches the filters of q, regardless of the page.
func (q *DeadQuery) selects(d *DeadLetter) bool {
	return (q.SaleID == "" || d.Message.SaleID == q.SaleID) &&
		(q.ErrorContains == "" || strings.Contains(strings.ToLower(d.Reason), strings.ToLower(q.ErrorContains))) &&
		!d.DiedAt.Before(q.DiedAfter) && (q.DiedBefore.IsZero() || d.DiedAt.Before(q.DiedBefore))
}
