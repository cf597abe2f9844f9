package events

import (
	"context"
	"time"

	"sluice/backend/telemetry"
)

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

// trace begins the span of deliveries.
func (c *Consumer) trace(ctx context.Context, all []delivery) (context.Context, *telemetry.Batch) {
	events := eventsOf(all)
	step := telemetry.Step{Operation: "process", Destination: destination, Group: c.group}
	return c.cfg.Tracer.Batch(ctx, step, len(events), itemsOf(events))
}
