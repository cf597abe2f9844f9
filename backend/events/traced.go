package events

import (
	"context"
	"time"

	"sluice/backend/telemetry"
)

// destination is the stream in traces.
const destination = "events"

// named finds the traces of the purchases that events are about.
func (r *Relay) named(ctx context.Context, events []Event) {
	if r.cfg.Tracer == nil {
		return
	}
	items := itemsOf(events)
	r.cfg.Notes.Fill(ctx, items)
	for i := range events {
		events[i].Trace = items[i].Parent
	}
}

// show shows that events were moved, since began.
func (r *Relay) show(ctx context.Context, began time.Time, moved []Event) {
	if r.cfg.Tracer == nil {
		return
	}
	_, batch := r.cfg.Tracer.Batch(
		ctx,
		telemetry.Step{Operation: "send", Destination: destination, Began: began},
		len(moved),
		itemsOf(moved),
	)
	batch.End(nil, nil)
}

func itemsOf(events []Event) []telemetry.Item {
	items := make([]telemetry.Item, len(events))
	for i, e := range events {
		items[i] = telemetry.Item{Order: e.OrderID, SaleID: e.SaleID, Parent: e.Trace}
	}
	return items
}

// show begins the span of deliveries.
func (c *Consumer) show(ctx context.Context, all []delivery) (context.Context, *telemetry.Batch) {
	if c.cfg.Tracer == nil {
		return ctx, nil
	}
	events := make([]Event, len(all))
	for i, d := range all {
		events[i] = d.event
	}
	return c.cfg.Tracer.Batch(
		ctx,
		telemetry.Step{Operation: "process", Destination: destination, Group: c.group},
		len(events),
		itemsOf(events),
	)
}
