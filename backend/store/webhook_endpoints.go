package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/backend/sale"
)

// MaxEndpoints is how many webhook endpoints there may be.
const MaxEndpoints = 100

// ErrManyEndpoints says that there are MaxEndpoints already. It wraps sale.ErrConflict.
var ErrManyEndpoints = fmt.Errorf("there are %d endpoints already: %w", MaxEndpoints, sale.ErrConflict)

// EndpointState is whether an endpoint is sent to.
type EndpointState string

// The states of an endpoint.
const (
	EndpointActive   EndpointState = "active"
	EndpointPaused   EndpointState = "paused"   // deliveries are kept until it is resumed
	EndpointDisabled EndpointState = "disabled" // it wants no more: nothing is kept for it either
)

// Endpoint is a URL that is told of orders.
type Endpoint struct {
	ID, URL, Title string
	Secret         string   // whsec_...
	OldSecret      string   // signs too, until OldUntil; "": there is none
	Types, Sales   []string // that it wants; none: all
	Strict         bool     // all its deliveries go in the order of their positions, else those of each order
	State          EndpointState
	Reason         string // why it is in its state
	CreatedBy      string // by the context's actor

	OldUntil, FailingSince, HoldUntil, CreatedAt time.Time // zero: none

	Failures        int64         // attempts in a row that failed
	Waiting, Failed int64         // deliveries
	Oldest          time.Duration // age of the oldest that waits
}

const endpointColumns = "id, url, title, secret, CASE WHEN old_until > %[1]s THEN old_secret ELSE '' END, CASE WHEN old_until > %[1]s THEN old_until END, " +
	"types, sales, strict, state, reason, created_by, failures, failing_since, CASE WHEN hold_until > %[1]s THEN hold_until END, created_at"

func (s *Store) endpoints(ctx context.Context, db conn, where string, args ...any) (found []Endpoint, err error) {
	err = db.query(ctx, func(r row) error {
		var e Endpoint
		var strict int64
		var types, sales, state string
		var oldUntil, failing, hold, created instant
		err := r.Scan(&e.ID, &e.URL, &e.Title, &e.Secret, &e.OldSecret, &oldUntil, &types, &sales, &strict, &state, &e.Reason, &e.CreatedBy, &e.Failures, &failing, &hold, &created)
		e.Types, e.Sales, e.Strict, e.State = strings.Fields(types), strings.Fields(sales), strict == 1, EndpointState(state)
		e.OldUntil, e.FailingSince, e.HoldUntil, e.CreatedAt = oldUntil.Time, failing.Time, hold.Time, created.Time
		found = append(found, e)
		return err
	}, "SELECT "+fmt.Sprintf(endpointColumns, s.engine.dialect().now)+" FROM webhook_endpoints"+where, args...)
	return found, err
}

// AddEndpoint stores a new endpoint (ID, URL, Title, Secret, Types, Sales, Strict), and writes it in the desk log with the actor of the context.
// Errors: sale.ErrExists, ErrManyEndpoints.
func (s *Store) AddEndpoint(ctx context.Context, e Endpoint) (Endpoint, error) {
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		var n int64
		if err := one(ctx, db, []any{&n}, "SELECT count(*) FROM webhook_endpoints"); err != nil {
			return err
		}
		if n >= MaxEndpoints {
			return ErrManyEndpoints
		}
		n, err := db.exec(ctx, `INSERT INTO webhook_endpoints (id, url, title, secret, types, sales, strict, created_at, created_by)
			VALUES ($1, $2, $3, $4, $5, $6, $7, `+s.engine.dialect().now+`, $8) ON CONFLICT (id) DO NOTHING`,
			e.ID, storable(e.URL), storable(e.Title), e.Secret, strings.Join(e.Types, " "), strings.Join(e.Sales, " "), one01(e.Strict), storable(actorOf(ctx)))
		if err == nil && n == 0 {
			err = sale.ErrExists
		}
		if err != nil {
			return err
		}
		if err := record(ctx, db, actorOf(ctx), "webhook.add", e.ID, because(ctx)); err != nil {
			return err
		}
		e, err = s.endpoint(ctx, db, e.ID, "")
		return err
	})
	if err != nil {
		return Endpoint{}, fmt.Errorf("order: add endpoint %s: %w", e.ID, err)
	}
	return e, nil
}

func one01(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (s *Store) endpoint(ctx context.Context, db conn, id, lock string) (Endpoint, error) {
	found, err := s.endpoints(ctx, db, " WHERE id = $1"+lock, id)
	if err == nil && len(found) == 0 {
		err = sale.ErrNotFound
	}
	if err != nil {
		return Endpoint{}, err
	}
	return found[0], nil
}

// Endpoint returns an endpoint with the numbers of its deliveries, or sale.ErrNotFound.
func (s *Store) Endpoint(ctx context.Context, id string) (Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	db := s.engine.direct()
	e, err := s.endpoint(ctx, db, id, "")
	if err == nil {
		err = s.counted(ctx, db, &e)
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("order: endpoint %s: %w", id, err)
	}
	return e, nil
}

func (s *Store) counted(ctx context.Context, db conn, e *Endpoint) error {
	var oldest, now instant
	if err := one(ctx, db, []any{&e.Waiting, &oldest, &now}, "SELECT count(*), min(created_at), "+s.engine.dialect().now+" FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 1", e.ID); err != nil {
		return err
	}
	if e.Waiting > 0 {
		e.Oldest = max(now.Sub(oldest.Time), 0)
	}
	return one(ctx, db, []any{&e.Failed}, "SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 3", e.ID)
}

// Endpoints returns every endpoint, the oldest first. counts: with the numbers of their deliveries.
func (s *Store) Endpoints(ctx context.Context, counts bool) ([]Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	db := s.engine.direct()
	found, err := s.endpoints(ctx, db, " ORDER BY created_at, id")
	for i := range found {
		if err == nil && counts {
			err = s.counted(ctx, db, &found[i])
		}
	}
	if err != nil {
		return nil, fmt.Errorf("order: endpoints: %w", err)
	}
	return found, nil
}

// ChangeEndpoint changes what an endpoint is: change gets it as it is, and what it leaves of URL, Title, Types, Sales, State and Reason is stored, with
// a line of the desk log. One that becomes active again is no longer failing. An error of change is returned as it is. Error: sale.ErrNotFound.
func (s *Store) ChangeEndpoint(ctx context.Context, id, action string, change func(*Endpoint) error) (e Endpoint, err error) {
	err = s.change(ctx, func(ctx context.Context, db conn) error {
		before, err := s.endpoint(ctx, db, id, s.engine.dialect().forUpdate)
		if err != nil {
			return err
		}
		e = before
		if err := change(&e); err != nil {
			return err
		}
		if _, err := db.exec(ctx, "UPDATE webhook_endpoints SET url = $2, title = $3, types = $4, sales = $5, state = $6, reason = $7 WHERE id = $1",
			id, storable(e.URL), storable(e.Title), strings.Join(e.Types, " "), strings.Join(e.Sales, " "), string(e.State), storable(e.Reason)); err != nil {
			return err
		}
		if e.State == EndpointActive && (before.State != EndpointActive || before.URL != e.URL) {
			if _, err := db.exec(ctx, "UPDATE webhook_endpoints SET failures = 0, failing_since = NULL, hold_until = NULL WHERE id = $1", id); err != nil {
				return err
			}
		}
		return record(ctx, db, actorOf(ctx), action, id, strings.TrimPrefix(because(ctx), ": "))
	})
	if err != nil {
		return Endpoint{}, fmt.Errorf("order: %s %s: %w", action, id, err)
	}
	return s.Endpoint(ctx, id)
}

// RotateSecret gives an endpoint a new secret; the old one signs too for as long as keep. Error: sale.ErrNotFound.
func (s *Store) RotateSecret(ctx context.Context, id, secret string, keep time.Duration) error {
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		n, err := db.exec(ctx, "UPDATE webhook_endpoints SET old_secret = secret, old_until = "+s.engine.dialect().ago("$3")+", secret = $2 WHERE id = $1", id, secret, -keep.Milliseconds())
		if err == nil && n == 0 {
			err = sale.ErrNotFound
		}
		if err != nil {
			return err
		}
		return record(ctx, db, actorOf(ctx), "webhook.rotate", id, "the old secret signs for "+keep.String()+because(ctx))
	})
	if err != nil {
		return fmt.Errorf("order: rotate secret of endpoint %s: %w", id, err)
	}
	return nil
}

// RemoveEndpoint forgets an endpoint; its deliveries and their log go with the next PruneDeliveries. Error: sale.ErrNotFound.
func (s *Store) RemoveEndpoint(ctx context.Context, id string) error {
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		n, err := db.exec(ctx, "DELETE FROM webhook_endpoints WHERE id = $1", id)
		if err == nil && n == 0 {
			err = sale.ErrNotFound
		}
		if err != nil {
			return err
		}
		return record(ctx, db, actorOf(ctx), "webhook.remove", id, strings.TrimPrefix(because(ctx), ": "))
	})
	if err != nil {
		return fmt.Errorf("order: remove endpoint %s: %w", id, err)
	}
	return nil
}

// PruneDeliveries drops some, at most limit, of the deliveries that were delivered longer ago than keep, or whose endpoint is gone, with their attempts. What is not
// delivered stays, however old. It tells how many it dropped.
func (s *Store) PruneDeliveries(ctx context.Context, keep time.Duration, limit int) (dropped int, err error) {
	err = s.change(ctx, func(ctx context.Context, db conn) error {
		d := s.engine.dialect()
		var ids []string
		collect := func(r row) error {
			var id string
			err := r.Scan(&id)
			ids = append(ids, id)
			return err
		}
		if err := db.query(ctx, collect, "SELECT id FROM webhook_deliveries WHERE state = 2 AND ended_at < "+d.ago("$1")+" ORDER BY ended_at LIMIT $2", keep.Milliseconds(), limit); err != nil {
			return err
		}
		if left := limit - len(ids); left > 0 {
			// The endpoints that have deliveries are found one by one by their index, which is quick however many deliveries there are.
			if err := db.query(ctx, collect, `WITH RECURSIVE owner (id) AS (
					SELECT (SELECT min(endpoint_id) FROM webhook_deliveries)
					UNION ALL SELECT (SELECT min(endpoint_id) FROM webhook_deliveries WHERE endpoint_id > owner.id) FROM owner WHERE owner.id IS NOT NULL
				) SELECT d.id FROM owner JOIN webhook_deliveries AS d ON d.endpoint_id = owner.id
				WHERE owner.id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM webhook_endpoints WHERE webhook_endpoints.id = owner.id) LIMIT $1`, left); err != nil {
				return err
			}
		}
		if dropped = len(ids); dropped == 0 {
			return nil
		}
		if _, err := db.exec(ctx, "DELETE FROM webhook_attempts WHERE delivery_id "+d.among("$1"), ids); err != nil {
			return err
		}
		_, err := db.exec(ctx, "DELETE FROM webhook_deliveries WHERE id "+d.among("$1"), ids)
		return err
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("order: prune deliveries: %w", err)
	}
	return dropped, err
}
