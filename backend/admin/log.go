package admin

import (
	"context"

	"sluice/backend/store"
)

// Log returns one page of the admin log, newest first. An error wraps sale.ErrUnavailable.
func (s *Service) Log(ctx context.Context, q store.LogQuery) ([]store.LogEntry, error) {
	return s.store.Log(ctx, q)
}

// Note records an action that changes nothing in the stores, such as a sign-in. An error wraps sale.ErrUnavailable.
func (s *Service) Note(ctx context.Context, actor, action, target, detail string) error {
	return s.store.Record(store.WithActor(ctx, actor), action, target, detail)
}
