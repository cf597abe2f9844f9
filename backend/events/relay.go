package events

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/telemetry"
	"sluice/internal/loop"
	redisscript "sluice/lua/redis"
)

// relayStore is the part of Store that a Relay uses; tests replace it to inject faults.
type relayStore interface {
	Changes(ctx context.Context, after int64, limit int) ([]Event, error)
	DeleteChanges(ctx context.Context, upTo int64) error
	DropChanges(ctx context.Context, keep int, inUse func(context.Context) (bool, error)) error
	Groups(ctx context.Context) ([]Group, error)
}

// RelayConfig tunes a Relay. Zero fields take the defaults named here.
type RelayConfig struct {
	Bound   int           // most entries that the stream may have; above it, events wait in SQL; 100,000
	Keep    int           // entries that are kept for later groups while there is no group; 1,000, at most half of Bound
	Batch   int           // events moved in one step; 500
	Poll    time.Duration // how long an idle relay waits for a wake-up; 1 s
	Turn    time.Duration // how long a crashed relay keeps others waiting; 3 s
	Log     *slog.Logger
	Metrics *Counters          // nil: not exported
	Tracer  *telemetry.Tracer  // nil: nothing is traced
	Parents *telemetry.Parents // of the purchases; required with Tracer
}

func (c RelayConfig) withDefaults() RelayConfig {
	c.Bound = cmp.Or(c.Bound, 100_000)
	c.Keep = min(cmp.Or(c.Keep, 1_000), c.Bound/2)
	c.Batch = cmp.Or(c.Batch, 500)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Turn = cmp.Or(c.Turn, 3*time.Second)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Metrics == nil {
		c.Metrics = NewCounters(nil)
	}
	return c
}

// Relay moves events from SQL to the stream, in the order of their positions and without gaps, and deletes from both
// what every group has acknowledged. Any number of processes may run one; they take turns. Two that run concurrently
// do no harm, because an event's id in the stream is its position in SQL, and a step does nothing unless the stream
// ends at the expected position. For the same reason a relay may crash anywhere: no event is lost or added twice.
//
// While there is no group and no page is open, a relay moves the newest events once in a Poll and drops the older ones:
// nothing reads them.
type Relay struct {
	client redisconn.Client
	space  keyspace.Space
	store  relayStore
	cfg    RelayConfig

	ends    int64 // last known end of the stream; -1: unknown
	entries int64
	settled bool  // the stream and SQL hold nothing that a trim would delete
	done    int64 // events up to here are deleted from SQL, so Redis may delete them too
	trimmed time.Time
	unread  bool // at the last trim there was no reader: neither a group nor an open page
	moved   int  // events since then
}

// NewRelay returns a Relay. It does not connect to Redis.
func NewRelay(client redisconn.Client, space keyspace.Space, db relayStore, cfg RelayConfig) *Relay {
	return &Relay{client: client, space: space, store: db, cfg: cfg.withDefaults(), ends: -1}
}

// Run relays events until ctx ends, while it is this process's turn; it returns nil. It retries after errors, with
// growing delays.
func (r *Relay) Run(ctx context.Context) error {
	retry := loop.Backoff{Log: r.cfg.Log, What: "relaying events"}
	for ctx.Err() == nil {
		lock, err := redisconn.Acquire(ctx, r.client, r.space.EventRelay(), r.cfg.Turn)
		switch {
		case err != nil:
			retry.Failed(ctx, wrap("take turns", err))
		case lock == nil:
			loop.Sleep(ctx, r.cfg.Turn/3)
		default:
			held, release := lock.KeepRenewed(ctx)
			r.turn(held, &retry)
			release()
		}
	}
	return nil
}

func (r *Relay) turn(ctx context.Context, retry *loop.Backoff) {
	r.ends = -1
	for ctx.Err() == nil {
		n, err := r.RunOnce(ctx)
		if err != nil {
			retry.Failed(ctx, err)
			continue
		}
		retry.Succeeded()
		if n == 0 {
			r.rest(ctx)
		}
	}
}

// rest waits until another step may have work. If Redis has lost events meanwhile, it marks the end of the stream as
// unknown.
func (r *Relay) rest(ctx context.Context) {
	switch {
	case r.full():
		loop.Sleep(ctx, r.cfg.Poll/20) // there is no notification of a group's progress
		return
	case r.unread:
		loop.Sleep(ctx, r.cfg.Poll)
	default:
		r.awaitWake(ctx)
	}
	if newest, err := newestPosition(ctx, r.client, r.space); err != nil || newest != r.ends {
		r.ends = -1 // the next step reads it again, or reports the error
	}
}

// awaitWake waits for a wake-up, for up to Poll.
func (r *Relay) awaitWake(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*r.cfg.Poll+redisconn.IOTimeout)
	defer cancel()
	if _, err := redisconn.AwaitToken(ctx, r.client, r.space.EventWake(), r.cfg.Poll); err != nil {
		loop.Sleep(ctx, r.cfg.Poll) // the next step gets the same error and reports it
	}
}

func (r *Relay) full() bool { return r.entries >= int64(r.cfg.Bound) }

// RunOnce moves one batch of events and, when it is due, deletes what every group has acknowledged. moved is 0 if there
// was nothing to move, or the stream is full.
func (r *Relay) RunOnce(ctx context.Context) (moved int, err error) {
	if r.ends < 0 {
		r.settled = false
		if err := r.append(ctx, -1, nil); err != nil {
			return 0, err
		}
	}
	if r.trimDue(time.Now()) {
		if err := r.tidy(ctx); err != nil {
			return 0, err
		}
	}
	if r.full() || r.unread && r.moved >= r.cfg.Keep {
		return 0, nil
	}
	events, err := r.store.Changes(ctx, r.ends, r.cfg.Batch)
	if err != nil || len(events) == 0 {
		return 0, err
	}
	r.findTraces(ctx, events)
	began := time.Now()
	if err := r.append(ctx, r.ends, events); err != nil {
		r.ends = -1 // the append may have succeeded
		return 0, err
	}
	for _, e := range events {
		if e.Position <= r.ends {
			moved++
		}
	}
	r.moved += moved
	r.settled = false
	r.trace(ctx, began, events[:moved])
	r.cfg.Metrics.relayed.Add(float64(moved))
	return moved, nil
}

// trimDue reports whether a trim is due: once in a Poll, more often while the stream is half full, and less often while
// there is nothing to delete.
func (r *Relay) trimDue(now time.Time) bool {
	interval := r.cfg.Poll
	if r.settled {
		interval *= settledPolls
	}
	if r.entries >= int64(r.cfg.Bound)/2 {
		interval = r.cfg.Poll / 20
	}
	return now.Sub(r.trimmed) >= interval
}

// tidy deletes what every group has acknowledged or, without a reader, all but the newest events.
func (r *Relay) tidy(ctx context.Context) error {
	if err := r.Trim(ctx); err != nil {
		return err
	}
	if r.unread {
		open, err := r.pagesOpen(ctx)
		if err != nil {
			return err
		}
		r.unread = !open
	}
	r.trimmed, r.moved = time.Now(), 0
	if r.unread {
		return r.store.DropChanges(ctx, r.cfg.Keep, r.isRead)
	}
	return nil
}

// settledPolls is how many Polls lie between two trims while there is nothing to delete.
const settledPolls = 10

// append adds events to the stream if it ends at the given position; otherwise it reads where the stream ends.
func (r *Relay) append(ctx context.Context, ends int64, events []Event) error {
	args := make([]any, 2, 2+2*len(events))
	args[0], args[1] = ends, r.cfg.Bound
	for _, e := range events {
		args = append(args, strconv.FormatInt(e.Position, 10), e.Encode())
	}
	answer, err := redisscript.Run(ctx, r.client, "event_append", []string{r.space.Events()}, args...).Int64Slice()
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
	answer, err := redisscript.Run(ctx, r.client, "event_trim", []string{r.space.Events()}, args...).Slice()
	if err != nil {
		return wrap("trim", err)
	}
	done, _ := answer[0].(int64)
	r.entries, _ = answer[1].(int64)
	n, _ := answer[2].(int64)
	r.unread = n == 0
	if missing := answer[3:]; len(missing) > 0 {
		return r.checkUnknown(ctx, missing)
	}
	if err := r.store.DeleteChanges(ctx, done); err != nil {
		return err
	}
	r.settled = n > 0 && done == r.done && done >= r.ends && r.entries <= 1
	r.done = done
	return nil
}

// isRead reports whether the stream has a group, such as one of a program that is not registered in SQL, or is read for
// open pages.
func (r *Relay) isRead(ctx context.Context) (bool, error) {
	groups, err := groupsInRedis(ctx, r.client, r.space)
	if err != nil || len(groups) > 0 {
		return true, err
	}
	return r.pagesOpen(ctx)
}

// pagesOpen reports whether a backend reads the stream for open pages (package notify).
func (r *Relay) pagesOpen(ctx context.Context) (bool, error) {
	n, err := r.client.Exists(ctx, r.space.EventPages()).Result()
	return n > 0, wrap("look for open pages", err)
}

// checkUnknown is called after a trim that created missing groups in Redis. It reads the groups from SQL again, and
// removes from Redis those that were removed from SQL meanwhile. This call of Trim deletes no changes from SQL.
func (r *Relay) checkUnknown(ctx context.Context, names []any) error {
	groups, err := r.store.Groups(ctx)
	if err != nil {
		return err
	}
	for _, n := range names {
		name, _ := n.(string)
		if slices.ContainsFunc(groups, func(g Group) bool { return g.Name == name }) {
			r.cfg.Log.Info("consumer group created in Redis; if Redis had lost it, it receives again the events that not "+
				"every group has acknowledged", "group", name)
		} else if err := destroy(ctx, r.client, r.space, name); err != nil {
			return err
		}
	}
	return nil
}

// destination names the stream in traces.
const destination = "events"

// findTraces sets the traces of the purchases that events are about.
func (r *Relay) findTraces(ctx context.Context, events []Event) {
	if r.cfg.Tracer == nil {
		return
	}
	items := itemsOf(events)
	r.cfg.Parents.Fill(ctx, items)
	for i := range events {
		events[i].Trace = items[i].Parent
	}
}

// trace records the span of events that were moved since began.
func (r *Relay) trace(ctx context.Context, began time.Time, moved []Event) {
	step := telemetry.Step{Operation: "send", Destination: destination, Began: began}
	_, batch := r.cfg.Tracer.Batch(ctx, step, len(moved), itemsOf(moved))
	batch.End(nil, nil)
}

func itemsOf(events []Event) []telemetry.Item {
	items := make([]telemetry.Item, len(events))
	for i, e := range events {
		items[i] = telemetry.Item{Order: e.OrderID, SaleID: e.SaleID, Message: e.ID, Parent: e.Trace}
	}
	return items
}

// RunWaker wakes the relay, in this or another process, when something changed, until ctx ends; it returns nil. Changes
// in a short time are coalesced. A wake-up may be lost; the relay then continues after its Poll.
func RunWaker(ctx context.Context, client redisconn.Client, space keyspace.Space, changed loop.Wake) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		call, cancel := context.WithTimeout(ctx, time.Second)
		_ = redisscript.Run(call, client, "event_wake", []string{space.EventWake()}).Err() // it may be lost
		cancel()
	}
}
