// Package admission decides purchases and keeps in Redis the sales that the decision reads.
//
// One atomic Redis script (lua/redis/admit.lua) decides a purchase: replay of an earlier request, limit per buyer,
// opening times, stock. If a unit is left, the same script takes it and queues the order. Concurrent purchases of one
// sale share a run of the script. The package does not write SQL and does not take orders from the queue.
package admission

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/telemetry"
	redisscript "sluice/lua/redis"
)

// Request is a request to buy one unit. Its strings must not point into a buffer that is reused, because the Redis
// client may read them after a timeout.
//
// With a positive KeyTTL, Redis stores Key in a dedup key, which recognises a replay in any sale of the shard. With 0,
// Redis stores a hash of Key with the order. It recognises a replay in the same sale while the buyer holds the order,
// and after a return of the order until 16 further orders of the buyer are returned (ADR 54).
type Request struct {
	SaleID      string        // valid, see sale.ValidateID
	Spread      int           // number of segments of the sale; 0 and 1: it lives in one shard
	Buyer       string        // valid, see sale.ValidateBuyer
	Key         string        // identifies the request among those of the buyer; a request with the same key is a replay
	KeyTTL      time.Duration // how long Redis holds the key; 0: as long as the order, see above
	Fingerprint string        // short hash of the request, without spaces; used if KeyTTL is positive
	Trace       string        // traceparent to store with the order for an hour; "" for none
}

// Decision is the result of a Request.
type Decision struct {
	Outcome    sale.Outcome
	OrderID    sale.OrderID  // for Accepted, Replayed and AlreadyBought
	OpensAt    time.Time     // for NotOpen
	RetryAfter time.Duration // for NotOpen: time until it opens, by the Redis clock
	Version    int64         // for NotOpen, SoldOut, SalePaused and SaleClosed: version of the sale
	Accepted   int64         // for the same outcomes: number of orders the sale had accepted
}

// Recorder stores accepted orders before the buyers get their answers, in case Redis loses them
// (rebuild.JournalWriters).
type Recorder interface {
	// Generation returns the generation of the data of a shard. The Admitter calls it before the script. If it returns an
	// error, each purchase of the group returns that error and takes no unit.
	Generation(shard keyspace.Shard) (int64, error)
	// Record stores orders that the script accepted or found, with the generation from before the script. The same order
	// can be recorded again. If Record returns an error, the purchases return that error, but their orders remain valid.
	Record(shard keyspace.Shard, generation int64, orders []sale.Order) error
}

// DefaultMaxReady is the default of Config.MaxReady. A queued order takes about 170 bytes in Redis, or 360 with
// an Idempotency-Key.
const DefaultMaxReady = 1_000_000

// defaultTimeout is the default of Config.Timeout.
const defaultTimeout = time.Second

// Config configures an Admitter.
type Config struct {
	// Client runs the script; required. It may pipeline, and it may repeat commands: the script is replay-safe.
	Client redis.Scripter
	Space  keyspace.Space
	IDs    Sequencer // required
	// MaxReady bounds the messages of a shard that wait for a worker. At the bound, a purchase that would get a unit has
	// the outcome QueueFull. Requeued messages can exceed the bound. 0 means DefaultMaxReady.
	MaxReady int64
	// Stream queues orders in the stream of their shard instead of its list.
	Stream bool
	// Recorder, if set, stores accepted orders.
	Recorder Recorder
	// Tracer, if set, records the runs of the script that decide traced purchases.
	Tracer *telemetry.Tracer
	// Refillers wait for units from other segments when the home segment of a purchase has none left, and report that the
	// sale is sold out. They are required for sales with several segments.
	Refillers *spread.Refillers
	// Timeout bounds the time of a group in Redis, and the time that a request waits for its group. 0 means 1 s.
	Timeout time.Duration
	// Replicas is the number of Redis replicas that must have an order before Admit returns Accepted or Replayed.
	// Otherwise Admit returns an error that wraps sale.ErrUnavailable; the order remains valid, and a repeated request
	// finds it.
	Replicas int
	// ReplicaClient returns a client of the server that Client uses for a shard; required if Replicas is positive.
	ReplicaClient func(keyspace.Shard) redisconn.Client
}

// Admitter decides purchases. It is safe for concurrent use.
type Admitter struct {
	cfg    Config
	script *redis.Script
	keys   keyCache
	groups groups
}

// NewAdmitter returns an Admitter. It does not connect.
func NewAdmitter(cfg Config) (*Admitter, error) {
	switch {
	case cfg.Client == nil || cfg.IDs == nil:
		return nil, errors.New("admission: Config needs Client and IDs")
	case cfg.MaxReady < 0 || cfg.Replicas < 0 || cfg.Timeout < 0:
		return nil, fmt.Errorf("admission: MaxReady %d, Replicas %d and Timeout %s must not be negative",
			cfg.MaxReady, cfg.Replicas, cfg.Timeout)
	case cfg.Replicas > 0 && cfg.ReplicaClient == nil:
		return nil, errors.New("admission: Config with Replicas needs ReplicaClient")
	}
	cfg.MaxReady = cmp.Or(cfg.MaxReady, DefaultMaxReady)
	cfg.Timeout = cmp.Or(cfg.Timeout, defaultTimeout)
	a := &Admitter{cfg: cfg, script: redisscript.Load("admit")}
	a.groups = groups{run: a.runGroup, timeout: cfg.Timeout, queues: map[spread.Part][]*waiter{}}
	return a, nil
}

// Admit decides r. Concurrent calls for one sale share round trips. With the default timeout, one attempt takes at most
// three seconds: one each for the order number, the wait for the group, and the run of the script. A purchase in a sale
// with several segments can need further attempts. Admit returns earlier if ctx is done. An error wraps
// sale.ErrUnavailable. The order may still have been accepted or be accepted later, and a repeated request finds it.
func (a *Admitter) Admit(ctx context.Context, r Request) (Decision, error) {
	home := spread.HomePart(r.SaleID, r.Buyer, r.Spread)
	if home.Spread > 1 && a.cfg.Refillers == nil {
		return Decision{}, unavailable("admit", errors.New("Config lacks Refillers, which sales with several segments need"))
	}
	id, err := a.cfg.IDs.Next(ctx, a.cfg.Space.ShardOfSegment(home.SaleID, home.Segment))
	if err != nil {
		return Decision{}, err
	}
	if home.Spread < 2 {
		return a.decide(ctx, home, r, id)
	}
	var d Decision
	err = a.cfg.Refillers.Retry(ctx, home, func() (lacksUnit bool, err error) {
		d, err = a.decide(ctx, home, r, id)
		return d.Outcome == sale.SoldOut, err
	})
	if err != nil {
		return Decision{}, err
	}
	return d, nil
}

// decide decides r in a part of its sale.
func (a *Admitter) decide(ctx context.Context, part spread.Part, r Request, id sale.OrderID) (Decision, error) {
	d, err := a.groups.decide(ctx, part, r, id)
	if err != nil {
		return Decision{}, unavailable("admit", err)
	}
	return d, nil
}

// parseDecision parses the line of the script's reply for the purchase with this order id: the name of the outcome and
// its values.
func parseDecision(line string, id sale.OrderID) (Decision, error) {
	word, rest, _ := strings.Cut(line, " ")
	outcome := sale.Outcome(word)
	if !slices.Contains(sale.Outcomes, outcome) {
		return Decision{}, fmt.Errorf("the script returned %q", line)
	}
	d := Decision{Outcome: outcome}
	var err error
	switch outcome {
	case sale.Accepted:
		d.OrderID = id
	case sale.Replayed, sale.AlreadyBought:
		d.OrderID, err = sale.ParseOrderID(rest)
	case sale.SoldOut, sale.SalePaused, sale.SaleClosed:
		err = parseNumbers(rest, &d.Version, &d.Accepted)
	case sale.NotOpen:
		var opens, now int64
		err = parseNumbers(rest, &opens, &now, &d.Version, &d.Accepted)
		d.OpensAt = time.UnixMilli(opens).UTC()
		d.RetryAfter = time.Duration(opens-now) * time.Millisecond
	}
	return d, err
}

// parseNumbers parses decimal numbers that are separated by spaces.
func parseNumbers(text string, to ...*int64) error {
	for _, n := range to {
		var word string
		var err error
		word, text, _ = strings.Cut(text, " ")
		if *n, err = strconv.ParseInt(word, 10, 64); err != nil {
			return fmt.Errorf("the script returned a number %q", word)
		}
	}
	return nil
}

// errUnusable reports that a key of one sale has the wrong type or a malformed value.
var errUnusable = errors.New("a key of the sale is unusable")

// rejected reports whether Redis has rejected a command permanently, for example because a key has the wrong type.
func rejected(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	return answered && !redisconn.Unavailable(err)
}

// unusable wraps errUnusable. It hides the type of err.
func unusable(err error) error { return fmt.Errorf("%w: %v", errUnusable, err) }

// unavailable wraps sale.ErrUnavailable with the operation. It hides the type of err, except errUnusable.
func unavailable(what string, err error) error {
	if rejected(err) {
		err = unusable(err)
	}
	if errors.Is(err, errUnusable) {
		return fmt.Errorf("admission: %s: %w: %w", what, sale.ErrUnavailable, err)
	}
	return fmt.Errorf("admission: %s: %w: %v", what, sale.ErrUnavailable, err)
}

// ConcernsOthers reports whether an error of one sale, such as that of an unavailable shard, also concerns other sales.
func ConcernsOthers(err error) bool {
	return errors.Is(err, sale.ErrUnavailable) && !errors.Is(err, errUnusable)
}
