package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/backend/sale"
	"sluice/backend/telemetry"
	"sluice/internal/loop"
	redisscript "sluice/lua/redis"
)

// delivery is one delivery of an event by Redis.
type delivery struct {
	id         string // in the stream
	body       string
	deliveries int64 // including this one
	event      Event
}

func idsOf(all []delivery) []string {
	ids := make([]string, len(all))
	for i, d := range all {
		ids[i] = d.id
	}
	return ids
}

func eventsOf(all []delivery) []Event {
	events := make([]Event, len(all))
	for i, d := range all {
		events[i] = d.event
	}
	return events
}

// process handles deliveries and acknowledges them in Redis. It ends when all are settled or ctx ends; the rest stays
// pending.
func (c *Consumer) process(ctx context.Context, all []delivery) {
	ids := idsOf(all)
	c.take(ids)
	defer c.drop(ids...)
	var good []delivery
	for _, d := range all {
		var err error
		d.event, err = Decode(d.body)
		d.event.Position, d.event.Deliveries = PositionOf(d.id), d.deliveries
		switch {
		case err != nil:
			c.deadLetter(ctx, d, err)
		case d.deliveries > int64(c.cfg.MaxDeliveries): // no reason is known: its consumers crashed or hung
			c.deadLetter(ctx, d, fmt.Errorf("%d consumers crashed or hung on it", d.deliveries-1))
		default:
			good = append(good, d)
		}
	}
	if len(good) == 0 {
		return
	}
	ctx, batch := c.trace(ctx, good)
	failed := c.settle(ctx, good)
	batch.End(ctx.Err(), failed)
}

// trace begins the span of deliveries.
func (c *Consumer) trace(ctx context.Context, all []delivery) (context.Context, *telemetry.Batch) {
	events := eventsOf(all)
	step := telemetry.Step{Operation: "process", Destination: destination, Group: c.group}
	return c.cfg.Tracer.Batch(ctx, step, len(events), itemsOf(events))
}

// settle handles events, together or, to find which of them fails, one by one.
func (c *Consumer) settle(ctx context.Context, all []delivery) map[sale.OrderID]string {
	err := c.handle(ctx, all)
	failed := map[sale.OrderID]string{}
	switch {
	case err == nil:
		c.done(ctx, all)
	case len(all) == 1:
		failed[all[0].event.OrderID] = OneLine(err)
		c.failed(ctx, all[0], err)
	case ctx.Err() == nil:
		for _, d := range all {
			if err := c.handle(ctx, []delivery{d}); err != nil {
				failed[d.event.OrderID] = OneLine(err)
				c.failed(ctx, d, err)
			} else {
				c.done(ctx, []delivery{d})
			}
		}
	}
	return failed
}

// handle calls the handler, and retries while a store is unavailable. If a stop interrupts that, no delivery is
// counted.
func (c *Consumer) handle(ctx context.Context, all []delivery) error {
	retry := loop.Backoff{Log: c.cfg.Log, What: "handling events"}
	for {
		err := c.call(ctx, eventsOf(all))
		if !errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil {
			retry.Succeeded()
			if errors.Is(err, sale.ErrUnavailable) {
				c.mu.Lock()
				for _, d := range all {
					c.uncounted[d.id] = d.deliveries - 1
				}
				c.mu.Unlock()
			}
			return err
		}
		c.cfg.Metrics.deliver(c.group, "waiting", len(all))
		retry.Failed(ctx, err)
	}
}

// call calls the handler and returns a panic as an error, so that a bad event does not crash the process repeatedly.
func (c *Consumer) call(ctx context.Context, events []Event) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	return c.handler(ctx, events)
}

// done acknowledges deliveries and counts them.
func (c *Consumer) done(ctx context.Context, all []delivery) {
	if c.acknowledge(ctx, all) {
		c.cfg.Metrics.deliver(c.group, "done", len(all))
	}
}

// acknowledge retries until Redis has acknowledged the events, or returns false when ctx ends. Unacknowledged events
// are handled again.
func (c *Consumer) acknowledge(ctx context.Context, all []delivery) bool {
	return loop.Retry(ctx, c.cfg.Log, "acknowledging events", func() error {
		return wrap("acknowledge", c.client.XAck(ctx, c.space.Events(), c.group, idsOf(all)...).Err())
	})
}

// failed delays the next delivery of an event, or makes it a dead letter.
func (c *Consumer) failed(ctx context.Context, d delivery, err error) {
	switch {
	case ctx.Err() != nil: // interrupted by a stop: not a failure
		return
	case errors.Is(err, ErrPermanent) || d.deliveries >= int64(c.cfg.MaxDeliveries):
		c.deadLetter(ctx, d, err)
		return
	}
	c.cfg.Metrics.deliver(c.group, "failed", 1)
	c.cfg.Log.InfoContext(ctx, "event failed, retrying later", "event", d.event.ID, "order", d.event.OrderID.String(),
		"deliveries", d.deliveries, "err", err)
	c.drop(d.id) // no longer renewed
	wait := min(c.cfg.Backoff<<min(d.deliveries-1, 20), c.cfg.Idle)
	if err := c.hold(ctx, c.cfg.Idle-wait, d.id); err != nil && ctx.Err() == nil {
		// the event is delivered again after Idle, which is longer than wait
		c.cfg.Log.InfoContext(ctx, "the retry of a failed event is delayed", "event", d.event.ID, "err", err)
	}
}

// deadLetter stores a dead letter of an event and acknowledges the event. After a crash between the two, the same dead
// letter is stored again. If an admin has dropped it or removed the group, the event is only acknowledged.
func (c *Consumer) deadLetter(ctx context.Context, d delivery, why error) {
	l := DeadLetter{
		Group: c.group, EventID: cmp.Or(d.event.ID, "stream-"+d.id), Position: PositionOf(d.id), Body: d.body,
		Reason: OneLine(why), Deliveries: d.deliveries,
	}
	dropped := false
	settled := loop.Retry(ctx, c.cfg.Log, "storing dead letters", func() error {
		err := c.store.AddDeadLetter(ctx, l)
		if dropped = isNotFound(err); dropped {
			return nil
		}
		return err
	})
	if settled && c.acknowledge(ctx, []delivery{d}) && !dropped {
		c.cfg.Metrics.deliver(c.group, "dead", 1)
		c.cfg.Log.WarnContext(ctx, "event became a dead letter",
			"event", l.EventID, "deliveries", l.Deliveries, "reason", l.Reason)
	}
}

// rerun retries a dead letter, because an admin requested it. LeaseRetry describes what follows after a crash.
func (c *Consumer) rerun(ctx context.Context, l DeadLetter) {
	e, err := Decode(l.Body)
	if err == nil {
		e.Position, e.Deliveries = l.Position, l.Deliveries+1
		err = c.handle(ctx, []delivery{{event: e}})
	}
	switch {
	case ctx.Err() != nil && errors.Is(err, sale.ErrUnavailable): // a stop during an outage
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		err = c.store.ReleaseRetry(stopping, l)
	case ctx.Err() != nil:
		return // the lease expires, as after a crash
	case err != nil:
		l.Reason, l.Deliveries = OneLine(err), l.Deliveries+1
		c.cfg.Metrics.deliver(c.group, "dead", 1)
		err = c.store.FailRetry(ctx, l)
	default:
		c.cfg.Metrics.deliver(c.group, "done", 1)
		err = c.store.RemoveDeadLetter(ctx, c.group, l.EventID)
	}
	if err != nil {
		c.cfg.Log.Warn("the result of a retried dead letter cannot be stored; it may be retried once more",
			"event", l.EventID, "err", err)
	}
}

// maxLine is the length of the result of OneLine, in bytes.
const maxLine = 500

// OneLine returns an error as one line of at most 500 bytes.
func OneLine(err error) string {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " ")
	return strings.ToValidUTF8(s[:min(len(s), maxLine)], "")
}

func (c *Consumer) take(ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.held[id] = time.Now()
	}
}

func (c *Consumer) drop(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		delete(c.held, id)
	}
}

// renew renews the leases of events that take long, so that other instances do not claim them. It runs until ctx ends.
func (c *Consumer) renew(ctx context.Context) {
	for ctx.Err() == nil {
		loop.Tick(ctx, c.cfg.Idle/4)
		old := c.renewed(time.Now())
		if len(old) == 0 {
			continue
		}
		if err := c.hold(ctx, 0, old...); err != nil && ctx.Err() == nil {
			c.cfg.Log.Debug("leases of events cannot be renewed; retrying", "err", err)
		}
	}
}

// renewed returns the stream ids to renew at a tick, and records them as renewed. It omits those taken less than half a
// tick ago. Those renewed at the last tick are always due, even if that tick was delayed.
func (c *Consumer) renewed(now time.Time) (old []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, since := range c.held {
		if now.Sub(since) >= c.cfg.Idle/8 {
			c.held[id] = now
			old = append(old, id)
		}
	}
	return old
}

// hold sets the idle time of this instance's events: other instances claim them when it reaches Idle. It restores the
// delivery counts of uncounted events.
func (c *Consumer) hold(ctx context.Context, idle time.Duration, ids ...string) error {
	args := []any{c.group, c.name}
	c.mu.Lock()
	for _, id := range ids {
		if deliveries, found := c.uncounted[id]; found {
			args = append(args, id, idle.Milliseconds(), deliveries)
		} else {
			args = append(args, id, idle.Milliseconds(), "")
		}
	}
	c.mu.Unlock()
	keys := []string{c.space.Events()}
	return wrap("renew", redisscript.Run(ctx, c.client, "event_extend_claim", keys, args...).Err())
}
