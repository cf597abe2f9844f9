package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/backend/sale"
)

// delivery is an event as Redis hands it out.
type delivery struct {
	id         string // in the stream
	body       string
	deliveries int64 // this one included
	event      Event
}

// process handles deliveries and acknowledges them in Redis. It ends when all are settled or ctx ends; the rest stays
// pending.
func (c *Consumer) process(ctx context.Context, all []delivery) {
	c.take(all)
	defer c.drop(all)
	var good []delivery
	for _, d := range all {
		var err error
		d.event, err = Decode(d.body)
		d.event.Position, d.event.Deliveries = PositionOf(d.id), d.deliveries
		switch {
		case err != nil:
			c.bury(ctx, d, err)
		case d.deliveries > int64(c.cfg.MaxDeliveries): // no reason is known: its consumers crashed or hung
			c.bury(ctx, d, fmt.Errorf("%d consumers died or hung over it", d.deliveries-1))
		default:
			good = append(good, d)
		}
	}
	if len(good) == 0 {
		return
	}
	ctx, batch := c.show(ctx, good)
	failed := c.settle(ctx, good)
	batch.End(ctx.Err(), failed)
}

// settle handles events, together or, to find which of them fails, one by one.
func (c *Consumer) settle(ctx context.Context, all []delivery) map[sale.OrderID]string {
	err := c.handle(ctx, all)
	failed := map[sale.OrderID]string{}
	switch {
	case err == nil:
		c.done(ctx, all)
	case len(all) == 1:
		failed[all[0].event.OrderID] = reason(err)
		c.failed(ctx, all[0], err)
	case ctx.Err() == nil:
		for _, d := range all {
			if err := c.handle(ctx, []delivery{d}); err != nil {
				failed[d.event.OrderID] = reason(err)
				c.failed(ctx, d, err)
			} else {
				c.done(ctx, []delivery{d})
			}
		}
	}
	return failed
}

// handle calls the handler, again and again while something is down.
func (c *Consumer) handle(ctx context.Context, all []delivery) error {
	events := make([]Event, len(all))
	for i, d := range all {
		events[i] = d.event
	}
	var retry backoff
	for {
		err := c.call(ctx, events)
		if !errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil {
			retry.reset(c.cfg.Log, "events are handled again")
			return err
		}
		c.cfg.Metrics.Delivered(c.group, "waiting", len(events))
		retry.wait(ctx, c.cfg.Log, "events cannot be handled now; trying again", err)
	}
}

// call turns a panic into an error: one bad event must not take the process along again and again.
func (c *Consumer) call(ctx context.Context, events []Event) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	return c.handler.Handle(ctx, events)
}

// done acknowledges.
func (c *Consumer) done(ctx context.Context, all []delivery) {
	if c.acknowledge(ctx, all) {
		c.cfg.Metrics.Delivered(c.group, "done", len(all))
	}
}

// acknowledge retries until Redis has acknowledged or ctx ends. Events without an acknowledgement are handled again,
// which is harmless and costs time.
func (c *Consumer) acknowledge(ctx context.Context, all []delivery) bool {
	ids := make([]string, len(all))
	for i, d := range all {
		ids[i] = d.id
	}
	var retry backoff
	for ctx.Err() == nil {
		err := c.client.XAck(ctx, c.space.Events(), c.group, ids...).Err()
		if err == nil {
			retry.reset(c.cfg.Log, "events are acknowledged again")
			return true
		}
		retry.wait(ctx, c.cfg.Log, "events cannot be acknowledged; trying again", wrap("acknowledge", err))
	}
	return false
}

// failed leaves an event to a later delivery, or buries it.
func (c *Consumer) failed(ctx context.Context, d delivery, err error) {
	switch {
	case ctx.Err() != nil: // a stop has ended it: not its fault
		return
	case errors.Is(err, ErrPermanent) || d.deliveries >= int64(c.cfg.MaxDeliveries):
		c.bury(ctx, d, err)
		return
	}
	c.cfg.Metrics.Delivered(c.group, "failed", 1)
	c.cfg.Log.InfoContext(
		ctx,
		"an event failed and comes again",
		"event",
		d.event.ID,
		"order",
		d.event.OrderID.String(),
		"deliveries",
		d.deliveries,
		"err",
		err,
	)
	c.drop([]delivery{d}) // no longer renewed
	wait := min(c.cfg.Backoff<<min(d.deliveries-1, 20), c.cfg.Idle)
	if err := c.hold(ctx, []delivery{d}, c.cfg.Idle-wait); err != nil && ctx.Err() == nil {
		// after Idle
		c.cfg.Log.InfoContext(ctx, "a failed event comes again later than it should", "event", d.event.ID, "err", err)
	}
}

// bury makes a dead letter of an event, and acknowledges it. Should it die between the two, the letter is written
// again, and is the same.
func (c *Consumer) bury(ctx context.Context, d delivery, why error) {
	l := DeadLetter{
		Group:      c.group,
		EventID:    d.event.ID,
		Position:   PositionOf(d.id),
		Body:       d.body,
		Reason:     reason(why),
		Deliveries: d.deliveries,
	}
	if l.EventID == "" {
		l.EventID = "stream-" + d.id
	}
	var retry backoff
	for {
		err := c.store.AddDeadLetter(ctx, l)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return
		}
		retry.wait(ctx, c.cfg.Log, "a dead event cannot be kept; trying again", err)
	}
	retry.reset(c.cfg.Log, "dead events are kept again")
	if c.acknowledge(ctx, []delivery{d}) {
		c.cfg.Metrics.Delivered(c.group, "dead", 1)
		c.cfg.Log.WarnContext(ctx, "an event is dead", "event", l.EventID, "deliveries", l.Deliveries, "reason", l.Reason)
	}
}

// rerun gives a dead letter to the handler once more, because a person wants it.
func (c *Consumer) rerun(ctx context.Context, l DeadLetter) {
	e, err := Decode(l.Body)
	if err == nil {
		e.Position, e.Deliveries = l.Position, l.Deliveries+1
		err = c.call(ctx, []Event{e})
	}
	switch {
	case errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil:
		return // its lease runs out, and then it is tried again
	case err != nil:
		l.Reason, l.Deliveries = reason(err), l.Deliveries+1
		c.cfg.Metrics.Delivered(c.group, "dead", 1)
		err = c.store.AddDeadLetter(ctx, l)
	default:
		c.cfg.Metrics.Delivered(c.group, "done", 1)
		err = c.store.RemoveDeadLetter(ctx, c.group, l.EventID)
	}
	if err != nil {
		c.cfg.Log.Warn(
			"what became of a dead event that was run again cannot be kept; it is run once more",
			"event",
			l.EventID,
			"err",
			err,
		)
	}
}

const maxReason = 500 // bytes

// reason is an error as one line.
func reason(err error) string {
	s := strings.Join(strings.Fields(strings.ToValidUTF8(err.Error(), "?")), " ")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "")
	}
	return s
}

func (c *Consumer) take(all []delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range all {
		c.held[d.id] = time.Now()
	}
}

func (c *Consumer) drop(all []delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range all {
		delete(c.held, d.id)
	}
}

// renew keeps the lease of events that take long, so that other instances do not claim them.
func (c *Consumer) renew(ctx context.Context) {
	tick := time.NewTicker(c.cfg.Idle / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var old []delivery
		c.mu.Lock()
		for id, since := range c.held {
			if time.Since(since) >= c.cfg.Idle/4 {
				c.held[id] = time.Now()
				old = append(old, delivery{id: id})
			}
		}
		c.mu.Unlock()
		if len(old) > 0 {
			if err := c.hold(ctx, old, 0); err != nil && ctx.Err() == nil {
				c.cfg.Log.Debug("events that are being handled could not be renewed", "err", err) // the next tick tries again
			}
		}
	}
}

// hold sets the idle time of this instance's events: other instances claim them when it reaches Idle.
func (c *Consumer) hold(ctx context.Context, all []delivery, since time.Duration) error {
	args := []any{c.group, c.name}
	for _, d := range all {
		args = append(args, d.id, since.Milliseconds())
	}
	return wrap("renew", c.keep.Run(ctx, c.client, []string{c.space.Events()}, args...).Err())
}
