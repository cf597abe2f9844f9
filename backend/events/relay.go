package events

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/telemetry"
	redisscript "sluice/lua/redis"
)

// relayStore is the part of Store that a Relay uses; tests replace it to inject faults.
type relayStore interface {
	Changes(ctx context.Context, after int64, limit int) ([]Change, error)
	DeleteChanges(ctx context.Context, upTo int64) error
	Groups(ctx context.Context) ([]Group, error)
}

// RelayConfig tunes a Relay. Zero fields take the defaults named here.
type RelayConfig struct {
	Bound   int           // most entries that the stream may have; above it, events wait in SQL; 100,000
	Keep    int           // entries that are kept for later groups while there is no group; 10,000, at most half of Bound
	Batch   int           // events moved in one step; 500
	Poll    time.Duration // how long an idle relay trusts that it would have been woken; 1 s
	Turn    time.Duration // how long a relay that is gone keeps others waiting; 3 s
	Log     *slog.Logger
	Relayed func(events int)   // called after each step; may be nil
	Tracer  *telemetry.Tracer  // nil: nothing is traced
	Notes   *telemetry.Parents // which purchases are; required with Tracer
}

func (c RelayConfig) withDefaults() RelayConfig {
	for _, d := range []struct {
		field *int
		value int
	}{{&c.Bound, 100_000}, {&c.Keep, 10_000}, {&c.Batch, 500}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	c.Keep = min(c.Keep, c.Bound/2)
	if c.Poll <= 0 {
		c.Poll = time.Second
	}
	if c.Turn <= 0 {
		c.Turn = 3 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Relayed == nil {
		c.Relayed = func(int) {}
	}
	return c
}

// Relay moves events from SQL to the stream, in the order of their positions and without gaps, and deletes from both
// what every group has acknowledged. Any number of processes may run one; they take turns. Two that run concurrently
// do no harm, because an event's id in the stream is its position in SQL, and a step does nothing unless the stream
// ends at the expected position. For the same reason a relay may crash anywhere: no event is lost or added twice.
type Relay struct {
	client redis.UniversalClient
	space  keyspace.Space
	store  relayStore
	cfg    RelayConfig

	add, drop *redis.Script

	ends    int64 // where the stream ends, as far as is known; -1: not known
	entries int64
	done    int64 // events up to here are deleted from SQL, so Redis may delete them too
	trimmed time.Time
}

// NewRelay makes a Relay. It does not connect yet.
func NewRelay(client redis.UniversalClient, space keyspace.Space, db relayStore, cfg RelayConfig) *Relay {
	return &Relay{
		client: client, space: space, store: db, cfg: cfg.withDefaults(), ends: -1,
		add: redisscript.Load("event_append"), drop: redisscript.Load("event_trim"),
	}
}

// Run relays until ctx ends, whenever it is this process's turn; it returns nil. What fails is tried again, with
// growing waits.
func (r *Relay) Run(ctx context.Context) error {
	var retry backoff
	for ctx.Err() == nil {
		lock, err := redisconn.Acquire(ctx, r.client, r.space.EventRelay(), r.cfg.Turn)
		switch {
		case err != nil:
			retry.wait(ctx, r.cfg.Log, "events cannot be relayed; trying again", wrap("take turns", err))
		case lock == nil:
			sleep(ctx, r.cfg.Turn/3)
		default:
			held, release := lock.KeepRenewed(ctx)
			r.turn(held, &retry)
			release()
		}
	}
	return nil
}

func (r *Relay) turn(ctx context.Context, retry *backoff) {
	r.ends = -1
	for ctx.Err() == nil {
		n, err := r.RunOnce(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			retry.wait(ctx, r.cfg.Log, "events cannot be relayed; trying again", err)
		default:
			retry.reset(r.cfg.Log, "events are relayed again")
			if n == 0 {
				r.rest(ctx)
			}
		}
	}
}

// rest waits for something to do.
func (r *Relay) rest(ctx context.Context) {
	if r.full() {
		sleep(ctx, r.cfg.Poll/20) // there is no notification of a group's progress
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*r.cfg.Poll+redisconn.IOTimeout)
	defer cancel()
	var err error
	if r.cfg.Poll >= time.Second { // BLPop knows whole seconds only; Do must end before the client's read timeout
		err = r.client.BLPop(ctx, r.cfg.Poll.Truncate(time.Second), r.space.EventWake()).Err()
	} else {
		err = r.client.Do(ctx, "BLPOP", r.space.EventWake(), r.cfg.Poll.Seconds()).Err()
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		sleep(ctx, r.cfg.Poll) // the next step gets the same error and reports it
	}
	r.ends = -1 // a Redis that has lost events is noticed here
}

func (r *Relay) full() bool { return r.entries >= int64(r.cfg.Bound) }

// RunOnce moves one batch of events and, when it is due, deletes what every group has acknowledged. moved is 0 when
// there was nothing to move, or no room.
func (r *Relay) RunOnce(ctx context.Context) (moved int, err error) {
	if r.ends < 0 {
		if err := r.append(ctx, -1, nil); err != nil {
			return 0, err
		}
	}
	if often := r.cfg.Poll; time.Since(r.trimmed) >= often ||
		r.entries >= int64(r.cfg.Bound)/2 && time.Since(r.trimmed) >= often/20 {
		if err := r.Trim(ctx); err != nil {
			return 0, err
		}
		r.trimmed = time.Now()
	}
	if r.full() {
		return 0, nil
	}
	changes, err := r.store.Changes(ctx, r.ends, r.cfg.Batch)
	if err != nil || len(changes) == 0 {
		return 0, err
	}
	events := make([]Event, len(changes))
	for i, c := range changes {
		events[i] = Of(c)
	}
	r.named(ctx, events)
	began := time.Now()
	if err := r.append(ctx, r.ends, events); err != nil {
		r.ends = -1 // it may have been carried out
		return 0, err
	}
	for _, e := range events {
		if e.Position <= r.ends {
			moved++
		}
	}
	r.show(ctx, began, events[:moved])
	r.cfg.Relayed(moved)
	return moved, nil
}

// append adds events to the stream if it ends at the given position; otherwise it reads where the stream ends.
func (r *Relay) append(ctx context.Context, ends int64, events []Event) error {
	args := make([]any, 2, 2+2*len(events))
	args[0], args[1] = ends, r.cfg.Bound
	for _, e := range events {
		args = append(args, strconv.FormatInt(e.Position, 10), e.Encode())
	}
	answer, err := r.add.Run(ctx, r.client, []string{r.space.Events()}, args...).Int64Slice()
	if err != nil {
		return wrap("append", err)
	}
	r.ends, r.entries = answer[0], answer[1]
	return nil
}

// Trim reads how far every group has come and deletes the events before that: first from SQL, and from Redis at the
// next call. An event that exists only in Redis was therefore acknowledged by all groups.
func (r *Relay) Trim(ctx context.Context) error {
	groups, err := r.store.Groups(ctx)
	if err != nil {
		return err
	}
	args := []any{r.done, r.cfg.Keep}
	for _, g := range groups {
		args = append(args, g.Name, g.Start)
	}
	answer, err := r.drop.Run(ctx, r.client, []string{r.space.Events()}, args...).Slice()
	if err != nil {
		return wrap("trim", err)
	}
	done, _ := answer[0].(int64)
	r.entries, _ = answer[1].(int64)
	if missing := answer[2:]; len(missing) > 0 {
		return r.checkUnknown(ctx, missing)
	}
	if err := r.store.DeleteChanges(ctx, done); err != nil {
		return err
	}
	r.done = done
	return nil
}

// checkUnknown reads again groups that Redis did not know: one that was removed at that instant is dropped, the
// others are created. Deletion waits for the next call.
func (r *Relay) checkUnknown(ctx context.Context, names []any) error {
	groups, err := r.store.Groups(ctx)
	if err != nil {
		return err
	}
	for _, n := range names {
		name, _ := n.(string)
		if slices.ContainsFunc(groups, func(g Group) bool { return g.Name == name }) {
			r.cfg.Log.Info(
				"a group of events is made in Redis; if it was there before, it sees again what not every group had acknowledged",
				"group",
				name,
			)
		} else if _, err := destroy(ctx, r.client, r.space, name); err != nil {
			return err
		}
	}
	return nil
}

// backoff waits longer each time, at most two seconds, and logs the first of a row of errors.
type backoff struct{ failures int }

func (b *backoff) wait(ctx context.Context, log *slog.Logger, message string, err error) {
	if b.failures == 0 && ctx.Err() == nil {
		log.Warn(message, "err", err)
	}
	limit := min(100*time.Millisecond<<min(b.failures, 5), 2*time.Second)
	b.failures++
	sleep(ctx, limit/2+rand.N(limit/2))
}

func (b *backoff) reset(log *slog.Logger, message string) {
	if b.failures > 0 {
		log.Info(message)
	}
	b.failures = 0
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
