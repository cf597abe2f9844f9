package desk

import (
	"context"

	"sluice/backend/order"
)

// Log lists one page of what operators did, the newest first. An error wraps sale.ErrUnavailable.
func (d *Desk) Log(ctx context.Context, q order.LogQuery) ([]order.LogEntry, error) {
	return d.store.Log(ctx, q)
}

// Note writes down what an operator did that changes nothing in the stores, such as signing in. An error wraps sale.ErrUnavailable.
func (d *Desk) Note(ctx context.Context, actor, action, target, detail string) error {
	return d.store.Record(order.WithActor(ctx, actor), action, target, detail)
}
