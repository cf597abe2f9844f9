package admin

import (
	"context"

	"sluice/backend/store"
)

// Log lists one page of what operators did, the newest first. An error wraps sale.ErrUnavailable.
func (d *Desk) Log(ctx context.Context, q store.LogQuery) ([]store.LogEntry, error) {
	return d.store.Log(ctx, q)
}

// Note writes down what an operator did that changes nothing in the stores, such as signing in. An error wraps sale.ErrUnavailable.
func (d *Desk) Note(ctx context.Context, actor, action, target, detail string) error {
	return d.store.Record(store.WithActor(ctx, actor), action, target, detail)
}
