package events

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/telemetry"
	"sluice/internal/loop"
	redisscript "sluice/lua/redis"
)

// Handler handles the events of a group. It must be safe for concurrent use and idempotent, and must not depend on the
// order of an order's events: an event is delivered at least once, and a later one may overtake one that failed.
//
// events is a batch in the order of positions. If the result is nil, all events are done. An error that wraps
// sale.ErrUnavailable is temporary: the same events are delivered again and no attempt is counted. After any other
// error the events are delivered again one by one. An event that then fails is retried with a delay, and becomes a dead
// letter after MaxDeliveries, or immediately if the error wraps ErrPermanent. ctx ends if a stop takes longer than
// Config.Drain.
type Handler func(ctx context.Context, events []Event) error

// consumerStore is the part of Store that a Consumer uses; tests replace it to inject faults.
type consumerStore interface {
	AddGroup(ctx context.Context, name string, fromNow bool) (Group, error)
	Group(ctx context.Context, name string) (Group, error)
	AddDeadLetter(ctx context.Context, l DeadLetter) error
	RemoveDeadLetter(ctx context.Context, group, eventID string) error
	LeaseRetry(ctx context.Context, group string, lease time.Duration) (*DeadLetter, error)
	FailRetry(ctx context.Context, l DeadLetter) error
	ReleaseRetry(ctx context.Context, l DeadLetter) error
}

// Config tunes a Consumer. Zero fields take the defaults named here. Every instance of a group should use the same.
type Config struct {
	// FromNow makes a new group begin with the events from now on, instead of all that are still stored.
	FromNow     bool
	Concurrency int // batches handled concurrently; 2
	Batch       int // events in a batch, at most; 100
	// Idle is the lease of an instance's events, which the instance renews. Other instances claim events that were not
	// renewed for Idle; 30 s, at least 10 ms.
	Idle          time.Duration
	MaxDeliveries int // deliveries after which an event that still fails is dead; 5
	// Backoff is the delay before the second delivery of a failed event. It doubles with each further delivery, up to
	// Idle; 1 s.
	Backoff time.Duration
	Drain   time.Duration     // how long a stop waits for handlers; 10 s
	Metrics *Counters         // nil: not exported
	Tracer  *telemetry.Tracer // nil: nothing is traced
	Log     *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, 2)
	c.Batch = cmp.Or(c.Batch, 100)
	c.MaxDeliveries = cmp.Or(c.MaxDeliveries, 5)
	c.Idle = max(cmp.Or(c.Idle, 30*time.Second), 10*time.Millisecond)
	c.Backoff = min(cmp.Or(c.Backoff, time.Second), c.Idle)
	c.Drain = cmp.Or(c.Drain, 10*time.Second)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Metrics == nil {
		c.Metrics = NewCounters(nil)
	}
	return c
}

// Consumer is one instance of a group. The instances of a group, in any processes, share its events. If an instance
// crashes, the others claim its events after Idle.
type Consumer struct {
	client  redisconn.Client
	space   keyspace.Space
	store   consumerStore
	group   string
	name    string // of this instance
	handler Handler
	cfg     Config
	tidied  time.Time     // when the sweep last removed consumers
	reading chan struct{} // holds an element while a loop reads, which may wait for events

	mu   sync.Mutex
	held map[string]time.Time // by stream id of an event being handled: when it was taken or last renewed
	// uncounted has the events with a last delivery that does not count, because a store was unavailable. It has, by
	// stream id, the number of deliveries before that one.
	uncounted map[string]int64
}

// New returns a Consumer. It does not connect to Redis. The error is a *sale.InvalidError.
func New(
	client redisconn.Client, space keyspace.Space, db consumerStore, group string, handler Handler, cfg Config,
) (*Consumer, error) {
	if err := ValidateGroup(group); err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	cfg = cfg.withDefaults()
	cfg.Log = cfg.Log.With("group", group)
	// exported from the start, so that rate() sees the first increase
	for _, outcome := range []string{"done", "failed", "dead", "waiting"} {
		cfg.Metrics.deliver(group, outcome, 0)
	}
	return &Consumer{
		client: client, space: space, store: db, group: group, handler: handler, cfg: cfg,
		name: fmt.Sprintf("%s-%d-%s", strings.ToLower(host), os.Getpid(), rand.Text()[:8]),
		held: map[string]time.Time{}, uncounted: map[string]int64{}, reading: make(chan struct{}, 1),
	}, nil
}

// Run consumes until ctx ends. Then it finishes the events in progress, releases the rest immediately, and returns
// nil. It retries while Redis or SQL is unavailable. It returns ErrRemoved when the group is removed.
func (c *Consumer) Run(ctx context.Context) error {
	if err := c.join(ctx, true); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	g, ctx := errgroup.WithContext(ctx)
	work, stop := loop.Outlive(ctx, c.cfg.Drain) // for handlers
	defer stop()
	for range c.cfg.Concurrency {
		g.Go(func() error { return c.loop(ctx, func() (bool, error) { return c.read(ctx, work) }) })
	}
	g.Go(func() error { return c.loop(ctx, func() (bool, error) { return c.sweep(ctx, work) }) })
	var renewing sync.WaitGroup
	renewing.Go(func() { c.renew(work) })
	err := g.Wait()
	stop()
	renewing.Wait()
	c.leave(context.WithoutCancel(ctx))
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// join creates the group in Redis and, the first time, registers it in SQL. It retries while either is unavailable. It
// returns ErrRemoved if the group was registered and no longer is.
func (c *Consumer) join(ctx context.Context, first bool) error {
	var removed error
	loop.Retry(ctx, c.cfg.Log, "joining the group", func() error {
		err := c.tryJoin(ctx, first)
		if isNotFound(err) {
			removed = fmt.Errorf("events: group %s: %w", c.group, ErrRemoved)
			return nil
		}
		return err
	})
	return removed
}

// tryJoin returns sale.ErrNotFound if the group is not registered.
func (c *Consumer) tryJoin(ctx context.Context, first bool) (err error) {
	var g Group
	if first {
		g, err = c.store.AddGroup(ctx, c.group, c.cfg.FromNow)
	} else {
		g, err = c.store.Group(ctx, c.group)
	}
	if err != nil {
		return err
	}
	if err := join(ctx, c.client, c.space, g); err != nil {
		return err
	}
	// If the group was removed meanwhile, it is removed from Redis again; otherwise the stream would wait for it forever.
	// A stop does not interrupt that.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_, err = c.store.Group(ctx, c.group)
	if isNotFound(err) {
		if err := destroy(ctx, c.client, c.space, c.group); err != nil {
			return err
		}
	}
	return err
}

// loop repeats step until ctx ends. It waits after a step that was idle or failed, and creates a group again that Redis
// has lost.
func (c *Consumer) loop(ctx context.Context, step func() (idle bool, err error)) error {
	retry := loop.Backoff{Log: c.cfg.Log, What: "reading events"}
	for ctx.Err() == nil {
		idle, err := step()
		switch {
		case ctx.Err() != nil:
		case noGroup(err):
			if err := c.join(ctx, false); err != nil {
				return err
			}
		case err != nil:
			retry.Failed(ctx, err)
		default:
			retry.Succeeded()
			if idle {
				loop.Tick(ctx, min(maxSweep, c.cfg.Idle/4))
			}
		}
	}
	return nil
}

// blocking bounds the wait of a read for events, and so the delay of a stop.
const blocking = time.Second

// maxSweep bounds the interval between sweeps, which is a quarter of Idle.
const maxSweep = 2500 * time.Millisecond

// tidyEvery is how often an instance removes the consumers of instances that have ended.
const tidyEvery = time.Minute

// read takes new events and handles them. One loop reads at a time. While it handles its events, another loop reads.
func (c *Consumer) read(ctx, work context.Context) (idle bool, err error) {
	select {
	case c.reading <- struct{}{}:
	case <-ctx.Done():
		return false, nil
	}
	streams, err := c.client.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: c.group, Consumer: c.name, Streams: []string{c.space.Events(), ">"}, Count: int64(c.cfg.Batch),
		Block: loop.UntilTick(blocking) + time.Millisecond, // 0 would wait forever
	}).Result()
	<-c.reading
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil {
		return false, wrap("read", err)
	}
	var all []delivery
	for _, m := range streams[0].Messages {
		body, _ := m.Values["event"].(string)
		all = append(all, delivery{id: m.ID, body: body, deliveries: 1})
	}
	c.process(work, all)
	return false, nil
}

// sweep claims the events of crashed instances, retries dead letters on request, and removes idle consumers.
func (c *Consumer) sweep(ctx, work context.Context) (idle bool, err error) {
	all, err := c.claim(ctx)
	if err != nil {
		return false, wrap("claim", err)
	}
	if len(all) > 0 {
		c.process(work, all)
		return false, nil
	}
	// Only one dead letter is leased at a time. A second one would have to wait for the first: meanwhile its lease could
	// expire, and an admin could not drop it.
	letter, err := c.store.LeaseRetry(ctx, c.group, c.cfg.Idle+time.Minute)
	if err != nil {
		return false, err
	}
	if letter != nil {
		c.rerun(work, *letter)
		return false, nil
	}
	if time.Since(c.tidied) < tidyEvery {
		return true, nil
	}
	c.tidied = time.Now()
	return true, wrap("tidy", c.removeConsumers(ctx, ""))
}

// claim takes over events that other instances have not renewed for Idle.
func (c *Consumer) claim(ctx context.Context) (all []delivery, err error) {
	pending, err := c.client.XPending(ctx, c.space.Events(), c.group).Result()
	if err != nil || pending.Count == 0 {
		return nil, err
	}
	answer, err := redisscript.Run(ctx, c.client, "event_claim", []string{c.space.Events()},
		c.group, c.name, c.cfg.Idle.Milliseconds(), c.cfg.Batch).Slice()
	if err != nil {
		return nil, err
	}
	for _, entry := range answer {
		fields, _ := entry.([]any)
		d := delivery{}
		d.id, _ = fields[0].(string)
		d.deliveries, _ = fields[1].(int64)
		d.body, _ = fields[2].(string)
		all = append(all, d)
	}
	return all, nil
}

// removeConsumers removes the consumers of the group that have no pending events and either have been idle for long or
// have the name stopping.
func (c *Consumer) removeConsumers(ctx context.Context, stopping string) error {
	idle := 10*time.Minute + 10*c.cfg.Idle
	return redisscript.Run(ctx, c.client, "event_remove_consumers", []string{c.space.Events()},
		c.group, idle.Milliseconds(), stopping).Err()
}

// leave releases the events that were not handled, so that other instances get them immediately, and removes this
// consumer from the group.
func (c *Consumer) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	pending, err := c.client.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: c.space.Events(), Group: c.group, Consumer: c.name, Start: "-", End: "+",
		Count: int64(10 * c.cfg.Batch * (c.cfg.Concurrency + 1)),
	}).Result()
	if err == nil && len(pending) > 0 {
		ids := make([]string, len(pending))
		for i, p := range pending {
			ids[i] = p.ID
		}
		err = c.hold(ctx, c.cfg.Idle, ids...)
	}
	if err == nil {
		err = c.removeConsumers(ctx, c.name)
	}
	if err != nil && !noGroup(err) {
		c.cfg.Log.Warn("the unhandled events of this instance reach other instances only after a delay",
			"after", c.cfg.Idle, "err", err)
	}
}
