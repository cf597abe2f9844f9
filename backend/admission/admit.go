// Package admission decides one purchase request: the per-user limit, then in one atomic Redis script the replay, the buyer, the
// window and the stock, and with a unit taken the order is on the queue in the same step. It also keeps what the script reads: sales in Redis.
//
// It never writes SQL and never takes from the queue.
package admission

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
)

// Request is one wish to buy one unit. Strings must outlive the call: the Redis client may still hold them after a timeout.
type Request struct {
	SaleID      string        // valid, see sale.ValidateID
	Buyer       string        // valid, see sale.ValidateBuyer
	Key         string        // names the request among those of this buyer: the same key again is a replay
	KeyTTL      time.Duration // how long a replay is recognised by its key; at least a millisecond
	Fingerprint string        // short hash of what is asked, without spaces
	Trace       string        // traceparent that is remembered beside the order for an hour; "": none
}

// Decision is the answer to a Request.
type Decision struct {
	Outcome    sale.Outcome
	OrderID    sale.OrderID  // of Accepted, Replayed and AlreadyBought
	OpensAt    time.Time     // of NotOpen
	RetryAfter time.Duration // of NotOpen: until it opens, by Redis's clock
	Version    int64         // of NotOpen, SoldOut, SalePaused, SaleClosed: which version of the sale said so
	Accepted   int64         // of the same four: how many orders the sale had accepted by then
}

// Admitter decides purchases. It is safe for concurrent use.
type Admitter struct {
	client   redis.Scripter
	space    keyspace.Space
	ids      *Sequencer
	script   *redis.Script
	keys     keyCache
	groups   groups
	record   Recorder
	bound    int64
	replicas replicas
	stream   bool
}

// DefaultMaxReady is how many accepted orders may wait in one shard where nothing else is said. A message takes about 150 bytes of Redis.
const DefaultMaxReady = 1_000_000

// Recorder writes down accepted orders before their buyers are told, should Redis lose them (rebuild.Keeper).
type Recorder interface {
	// Generation is asked before Redis is.
	Generation() int64
	// Record is told what was accepted then or, by a repetition, before; the same order comes as often as it is asked for. When it fails, the orders are
	// accepted all the same.
	Record(generation int64, orders []sale.Order)
}

// RecordTo makes the Admitter write down what it accepts. It must be called before the first Admit.
func (a *Admitter) RecordTo(r Recorder) { a.record = r }

// MaxReady bounds the messages that nobody has taken, in each shard: with so many, a purchase that would get a unit is QueueFull. Orders that come back to the queue
// may exceed it. It must be called before the first Admit; without it the bound is DefaultMaxReady.
func (a *Admitter) MaxReady(n int64) { a.bound = n }

// IntoStream makes the Admitter queue orders in the stream of their shard and not in its list. It must be called before the first Admit.
func (a *Admitter) IntoStream() { a.stream = true }

// decideTimeout bounds a group's stay in Redis, and before that the wait for its turn.
const decideTimeout = time.Second

// NewAdmitter makes an Admitter. The client may be an auto-pipelining one, and may repeat a command: the script is replay-safe.
func NewAdmitter(client redis.Scripter, space keyspace.Space, ids *Sequencer) *Admitter {
	a := &Admitter{client: client, space: space, ids: ids, script: redisscript.Load("admit"), bound: DefaultMaxReady}
	a.groups = groups{run: a.runGroup, timeout: decideTimeout, sales: map[string]*saleQueue{}}
	return a
}

// Admit decides r. Concurrent calls for one sale share round trips. An error wraps sale.ErrUnavailable; the order may then have been accepted
// all the same, and the same request again finds it. It takes three seconds at most (for an order number, for its turn, for the decision), or until ctx is
// done; the order may be accepted after that.
func (a *Admitter) Admit(ctx context.Context, r Request) (Decision, error) {
	id, err := a.ids.Next(ctx)
	if err != nil {
		return Decision{}, err
	}
	d, err := a.groups.decide(ctx, r, id)
	if err != nil {
		return Decision{}, unavailable("admit", err)
	}
	return d, nil
}

// parseDecision reads one line of the script's answer to a purchase with this order id.
func parseDecision(answer string, id sale.OrderID) (Decision, error) {
	word, rest, _ := strings.Cut(answer, " ")
	var d Decision
	var err error
	switch word {
	case "accepted":
		d.Outcome, d.OrderID = sale.Accepted, id
	case "replayed":
		d.Outcome = sale.Replayed
		d.OrderID, err = sale.ParseOrderID(rest)
	case "already_bought":
		d.Outcome = sale.AlreadyBought
		d.OrderID, err = sale.ParseOrderID(rest)
	case "sold_out":
		d.Outcome = sale.SoldOut
		err = numbers(rest, &d.Version, &d.Accepted)
	case "paused":
		d.Outcome = sale.SalePaused
		err = numbers(rest, &d.Version, &d.Accepted)
	case "closed":
		d.Outcome = sale.SaleClosed
		err = numbers(rest, &d.Version, &d.Accepted)
	case "not_open":
		var opens, now int64
		d.Outcome = sale.NotOpen
		err = numbers(rest, &opens, &now, &d.Version, &d.Accepted)
		d.OpensAt = time.UnixMilli(opens).UTC()
		d.RetryAfter = time.Duration(opens-now) * time.Millisecond
	case "key_reused":
		d.Outcome = sale.KeyReused
	case "unknown_sale":
		d.Outcome = sale.UnknownSale
	case "queue_full":
		d.Outcome = sale.QueueFull
	default:
		err = fmt.Errorf("the script answered %q", answer)
	}
	return d, err
}

// numbers reads as many numbers as there are places for them, with a space between.
func numbers(text string, to ...*int64) error {
	for _, n := range to {
		var word string
		var err error
		word, text, _ = strings.Cut(text, " ")
		if *n, err = strconv.ParseInt(word, 10, 64); err != nil {
			return fmt.Errorf("the script answered a number %q", word)
		}
	}
	return nil
}

func unavailable(what string, err error) error {
	return fmt.Errorf("admission: %s: %w: %v", what, sale.ErrUnavailable, err)
}
