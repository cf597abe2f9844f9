package store

import (
	"context"
	"fmt"
	"time"

	"sluice/backend/sale"
)

// Redeliver has a delivery sent again, now, whatever has become of it, and writes it in the desk log with the actor of the context. One that is being sent stays as
// it is. Errors: sale.ErrNotFound; sale.ErrConflict when its endpoint is disabled.
func (s *Store) Redeliver(ctx context.Context, id string) error {
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		d := s.engine.dialect()
		var endpointID string
		if err := one(ctx, db, []any{&endpointID}, "SELECT endpoint_id FROM webhook_deliveries WHERE id = $1", id); err != nil {
			return notFound(err)
		}
		if err := s.sendable(ctx, db, endpointID); err != nil {
			return err
		}
		if _, err := db.exec(ctx, "UPDATE webhook_deliveries SET state = 1, attempts = 0, due_at = "+d.now+", ended_at = NULL, leased_until = NULL WHERE id = $1 AND (leased_until IS NULL OR leased_until <= "+d.now+")", id); err != nil {
			return err
		}
		return record(ctx, db, actorOf(ctx), "webhook.redeliver", id, "endpoint "+endpointID+because(ctx))
	})
	if err != nil {
		return fmt.Errorf("order: redeliver %s: %w", id, err)
	}
	return nil
}

func notFound(err error) error {
	if err == errNoRow { //nolint:errorlint // one returns it as it is
		return sale.ErrNotFound
	}
	return err
}

func (s *Store) sendable(ctx context.Context, db conn, endpointID string) error {
	e, err := s.endpoint(ctx, db, endpointID, s.engine.dialect().forUpdate)
	if err == nil && e.State == EndpointDisabled {
		err = fmt.Errorf("its endpoint is disabled: %w", sale.ErrConflict)
	}
	return err
}

// RedeliverFailed has some, at most limit, of an endpoint's deliveries sent again that were given up since then, the oldest first, and tells how many. The desk log
// has a line of it. Errors as of Redeliver.
func (s *Store) RedeliverFailed(ctx context.Context, endpointID string, since time.Time, limit int) (n int64, err error) {
	err = s.change(ctx, func(ctx context.Context, db conn) error {
		if err := s.sendable(ctx, db, endpointID); err != nil {
			return err
		}
		var err error
		n, err = db.exec(ctx, "UPDATE webhook_deliveries SET state = 1, attempts = 0, due_at = "+s.engine.dialect().now+`, ended_at = NULL WHERE number IN (
			SELECT number FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 3 AND ended_at >= $2 ORDER BY number LIMIT $3)`, endpointID, since, limit)
		if err != nil || n == 0 {
			return err
		}
		return record(ctx, db, actorOf(ctx), "webhook.redeliver", endpointID, fmt.Sprintf("%d that were given up", n)+because(ctx))
	})
	if err != nil {
		return 0, fmt.Errorf("order: redeliver what endpoint %s did not get: %w", endpointID, err)
	}
	return n, nil
}
