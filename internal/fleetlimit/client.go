package fleetlimit

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/internal/loop"
	redisscript "sluice/lua/redis"
)

// Client leases slots from Redis. Safe for concurrent use.
type Client struct {
	redis redis.Scripter
	now   func() float64 // us of the monotonic clock of the machine
	trip  atomic.Int64   // expected us of a lease
	quiet atomic.Int64   // us until which a started server is not logged again
}

// NewClient returns a client of a Redis server or cluster. The caller closes server. now returns us of the monotonic
// clock in which leases are expressed.
func NewClient(server redis.Scripter, now func() float64) *Client {
	return &Client{redis: server, now: now}
}

// timeout bounds one round trip. The slots of a lease that takes longer count as spent.
const timeout = 500 * time.Millisecond

// tags is the number of hash tags over which limits are spread. Each tag has a key that detects a restarted server.
const tags = 16

func keys(r *Rule, key string) []string {
	name := r.name + ":" + key
	return keysOf(crc32.ChecksumIEEE([]byte(name))%tags, name)
}

func keysOf(tag uint32, name string) []string {
	prefix := fmt.Sprintf("sluice:limit:{%x}:", tag)
	return []string{prefix + name, prefix + "start"}
}

// beginInterval is how often Run checks whether the server has started again.
const beginInterval = 5 * time.Second

// Run lets the server detect its own start within beginInterval, also without requests of clients. From then on, the
// server waits until all earlier leases have ended. Run returns when ctx ends. It ignores errors, because leases report
// them.
func (c *Client) Run(ctx context.Context) {
	for ctx.Err() == nil {
		c.begin(ctx)
		loop.Sleep(ctx, beginInterval)
	}
}

// begin runs the script of a lease for no lanes of a rule that does not exist, because the script stores the time at
// which the server has started. It does so for each tag, because the servers of a cluster start at different times.
func (c *Client) begin(ctx context.Context) {
	r := &Rule{interval: 1, window: 1, lanes: 1}
	loop.Each(make([]struct{}, tags), maxBackground, func(tag int, _ struct{}) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return redisscript.Run(ctx, c.redis, "limit_lease", keysOf(uint32(tag), ""), arguments(r, Demand{}, 0, "")...).Err()
	})
}

// Lease leases slots of a key of a rule.
func (c *Client) Lease(ctx context.Context, r *Rule, key string, d Demand) (Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	id := strconv.FormatUint(rand.Uint64(), 36)
	trip := float64(c.trip.Load())
	sent := c.now()
	reply, err := redisscript.Run(ctx, c.redis, "limit_lease", keys(r, key), arguments(r, d, trip, id)...).Float64Slice()
	if err != nil {
		return Lease{}, fmt.Errorf("fleet limit: lease: %w", err)
	}
	received := c.now()
	c.trip.Store(int64(expected(trip, received-sent)))
	return parse(r, reply, id, sent, received)
}

// startedPause is the least time between two warnings about a server that has started.
const startedPause = 30 * time.Second

// warnStarted logs a lease that is refused because slots may have been leased before the server started.
func (c *Client) warnStarted(log *slog.Logger, l Lease) {
	now, quiet := int64(c.now()), c.quiet.Load()
	if !l.Starting || now < quiet || !c.quiet.CompareAndSwap(quiet, now+startedPause.Microseconds()) {
		return
	}
	log.Warn("the Redis server of fleet limits has started and grants no lease until all earlier ones have ended: "+
		"on_error of each rule decides", "at_most", duration(maxAhead))
}

// expected returns the moving average of round trips in us, which is expected of the next one. A trip of 0 means that
// none was measured.
func expected(trip, measured float64) float64 {
	if trip == 0 {
		return measured
	}
	return trip + (measured-trip)/4
}

// arguments returns ARGV of limit_lease. The script skips slots that close before the answer is expected. The skipped
// time is limited, so that it never includes all slots that may be leased.
func arguments(r *Rule, d Demand, trip float64, id string) []any {
	skip := min(trip, max(r.window-r.interval, 0))
	return []any{r.interval, r.window, r.ahead, r.lanes, d.Lanes, d.Slots, skip, id}
}

var errReply = errors.New("fleet limit: lease: unexpected reply")

// parse converts a reply of limit_lease to the edge's clock. Redis decided at an unknown time between sent and
// received. Therefore a slot opens at the latest time, and closes at the earliest time, that these bounds and the drift
// of the clock permit.
func parse(r *Rule, reply []float64, id string, sent, received float64) (Lease, error) {
	if len(reply)%3 != 0 || len(reply) == 0 {
		return Lease{}, errReply
	}
	l := Lease{Redis: reply[0], Further: reply[1], Starting: reply[2] == 1}
	for v := reply[3:]; len(v) > 0; v = v[3:] {
		step := float64(r.lanes) * r.interval
		until := v[1]*r.interval - l.Redis
		l.Segments = append(l.Segments, Segment{
			Opens:     received + (until-r.window)*(1+drift),
			OpensStep: step * (1 + drift),
			Closes:    sent + (until-1)*(1-drift), ClosesStep: step * (1 - drift),
			N: int(v[2]), Lane: int(v[0]), Next: v[1], Stride: r.lanes, ID: id,
		})
	}
	return l, nil
}

// Return returns unspent slots, which must not be spent afterwards. It may be repeated.
func (c *Client) Return(ctx context.Context, r *Rule, key string, segments []Segment) error {
	if len(segments) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := redisscript.Run(ctx, c.redis, "limit_return", keys(r, key)[:1], returns(segments)...).Err(); err != nil {
		return fmt.Errorf("fleet limit: return: %w", err)
	}
	return nil
}

func returns(segments []Segment) []any {
	args := make([]any, 0, 4*len(segments))
	whole := func(f float64) string { return strconv.FormatFloat(f, 'f', 0, 64) }
	for _, s := range segments {
		args = append(args, s.Lane, whole(s.Next), whole(s.end()), s.ID)
	}
	return args
}
