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

	"sluice/backend/keyspace"
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
}

// Decision is the answer to a Request.
type Decision struct {
	Outcome    sale.Outcome
	OrderID    sale.OrderID  // of Accepted, Replayed and AlreadyBought
	OpensAt    time.Time     // of NotOpen
	RetryAfter time.Duration // of NotOpen: until it opens, by Redis's clock
	Version    int64         // of NotOpen, SoldOut, SalePaused, SaleClosed: which version of the sale said so
}

// Admitter decides purchases. It is safe for concurrent use.
type Admitter struct {
	client redis.Scripter
	space  keyspace.Space
	ids    *Sequencer
	script *redis.Script
	keys   keyCache
}

// NewAdmitter makes an Admitter. The client may be an auto-pipelining one, and may repeat a command: the script is replay-safe.
func NewAdmitter(client redis.Scripter, space keyspace.Space, ids *Sequencer) *Admitter {
	return &Admitter{client: client, space: space, ids: ids, script: redisscript.Load("admit")}
}

// Admit decides r. An error wraps sale.ErrUnavailable; the order may then have been accepted all the same, and the same request again finds it.
func (a *Admitter) Admit(ctx context.Context, r Request) (Decision, error) {
	id, err := a.ids.Next(ctx)
	if err != nil {
		return Decision{}, err
	}
	k := a.keys.of(a.space, r.SaleID)
	answer, err := a.script.Run(ctx, a.client,
		[]string{k.sale, k.stock, k.buyers, a.space.LaneOf(r.SaleID).Dedup(r.Buyer, r.Key), k.ready, k.wake},
		id.String(), r.SaleID, r.Buyer, r.Fingerprint, max(r.KeyTTL.Milliseconds(), 1)).Text()
	if err != nil {
		return Decision{}, unavailable("admit", err)
	}
	d, err := parseDecision(answer)
	if err != nil {
		return Decision{}, unavailable("admit", err)
	}
	return d, nil
}

func parseDecision(answer string) (Decision, error) {
	word, rest, _ := strings.Cut(answer, " ")
	var d Decision
	var err error
	switch word {
	case "accepted":
		d.Outcome = sale.Accepted
		d.OrderID, err = sale.ParseOrderID(rest)
	case "replayed":
		d.Outcome = sale.Replayed
		d.OrderID, err = sale.ParseOrderID(rest)
	case "already_bought":
		d.Outcome = sale.AlreadyBought
		d.OrderID, err = sale.ParseOrderID(rest)
	case "sold_out":
		d.Outcome = sale.SoldOut
		d.Version, err = strconv.ParseInt(rest, 10, 64)
	case "paused":
		d.Outcome = sale.SalePaused
		d.Version, err = strconv.ParseInt(rest, 10, 64)
	case "closed":
		d.Outcome = sale.SaleClosed
		d.Version, err = strconv.ParseInt(rest, 10, 64)
	case "not_open":
		var opens, now int64
		d.Outcome = sale.NotOpen
		_, err = fmt.Sscanf(rest, "%d %d %d", &opens, &now, &d.Version)
		d.OpensAt = time.UnixMilli(opens).UTC()
		d.RetryAfter = time.Duration(opens-now) * time.Millisecond
	case "key_reused":
		d.Outcome = sale.KeyReused
	case "unknown_sale":
		d.Outcome = sale.UnknownSale
	default:
		err = fmt.Errorf("the script answered %q", answer)
	}
	return d, err
}

func unavailable(what string, err error) error {
	return fmt.Errorf("admission: %s: %w: %v", what, sale.ErrUnavailable, err)
}
