package fleetlimit

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	redisscript "sluice/lua/redis"
)

// Client leases slots from Redis. Safe for concurrent use.
type Client struct {
	redis redis.Scripter
	now   func() float64 // us of the monotonic clock of the machine
	trip  atomic.Int64   // us that a lease is expected to take
}

// NewClient returns a client of a Redis server or cluster. The caller closes it. now returns us of a monotonic clock,
// in which leases are expressed.
func NewClient(server redis.Scripter, now func() float64) *Client {
	return &Client{redis: server, now: now}
}

// timeout is for one round trip. A lease that takes longer is spent.
const timeout = 500 * time.Millisecond

// tags is how many hash tags the limits are spread over. Each has a key that detects a server that has restarted.
const tags = 16

func keys(r *Rule, key string) []string {
	name := r.name + ":" + key
	tag := fmt.Sprintf("sluice:limit:{%x}:", crc32.ChecksumIEEE([]byte(name))%tags)
	return []string{tag + name, tag + "start"}
}

// Lease leases slots of a key of a rule.
func (c *Client) Lease(ctx context.Context, r *Rule, key string, d Demand) (Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	id := strconv.FormatUint(rand.Uint64(), 36)
	trip := float64(c.trip.Load())
	sent := c.now()
	reply, err := redisscript.Run(ctx, c.redis, "limit_lease", keys(r, key), arguments(r, d, trip, id)...).Slice()
	if err != nil {
		return Lease{}, fmt.Errorf("fleet limit: lease: %w", err)
	}
	received := c.now()
	c.trip.Store(int64(expected(trip, received-sent)))
	return parse(r, reply, id, sent, received)
}

// expected returns how long the next round trip is expected to take, in us: a moving average. 0: none was measured.
func expected(trip, measured float64) float64 {
	if trip == 0 {
		return measured
	}
	return trip + (measured-trip)/4
}

// arguments returns ARGV of limit_lease. The lease has no slot that closes before the answer is expected, except if no
// slot that may be leased closes later.
func arguments(r *Rule, d Demand, trip float64, id string) []any {
	skip := min(trip, max(r.window-r.interval, 0))
	return []any{r.interval, r.window, r.ahead, r.lanes, d.Lanes, d.Slots, skip, id}
}

var errReply = errors.New("fleet limit: lease: unexpected reply")

// parse converts a reply of limit_lease to the clock of the edge, on which the request was sent and the reply received
// at these times. Redis has decided in between: a slot opens at the latest, and closes at the earliest time that this
// permits, and that the drift of the clock permits.
func parse(r *Rule, reply []any, id string, sent, received float64) (Lease, error) {
	if len(reply)%3 != 0 || len(reply) == 0 {
		return Lease{}, errReply
	}
	values := make([]float64, len(reply))
	for i, v := range reply {
		switch v := v.(type) {
		case int64:
			values[i] = float64(v)
		case string:
			f, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return Lease{}, errReply
			}
			values[i] = f
		default:
			return Lease{}, errReply
		}
	}
	l := Lease{Redis: values[0], Further: values[1], Starting: values[2] == 1}
	for v := values[3:]; len(v) > 0; v = v[3:] {
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

// Return returns slots that were not spent, and must not be spent any more. It may be repeated.
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
