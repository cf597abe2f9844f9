package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/duration"
)

// Store keeps endpoints and their deliveries. It is safe for concurrent use.
type Store struct {
	db  *store.DB
	now func() time.Time // tests replace it

	mu     sync.Mutex
	leased map[string]*events.ScanBound[leaseKey] // by endpoint, also of removed ones: what this process has leased
	whole  time.Time                              // the last DueEndpoints without bounds
}

// NewStore returns the Store in db.
func NewStore(db *store.DB) *Store {
	return &Store{db: db, now: time.Now, leased: map[string]*events.ScanBound[leaseKey]{}}
}

// MaxCounted bounds Waiting and Failed of an Endpoint: the deliveries of a large backlog take long to count.
const MaxCounted = 10_000

// maxEndpoints is the maximum number of webhook endpoints.
const maxEndpoints = 100

var errManyEndpoints = store.Refused("There are %d endpoints already. Remove one first.", maxEndpoints)

// maxOldSecrets bounds the secrets of earlier rotations that still sign: each adds a signature to every request.
const maxOldSecrets = 8

var errManySecrets = store.Refused("%d old secrets still sign. Rotate when one has expired, or with a keep of 0.",
	maxOldSecrets)

var errDisabled = store.Refused("The endpoint is disabled. Resume it first.")

// EndpointState determines whether deliveries are sent to an endpoint.
type EndpointState string

// The states of an endpoint.
const (
	EndpointActive   EndpointState = "active"
	EndpointPaused   EndpointState = "paused"   // deliveries are stored until it is resumed
	EndpointDisabled EndpointState = "disabled" // deliveries are neither sent nor stored
)

// Endpoint is a URL that receives events of orders.
type Endpoint struct {
	ID, URL, Title string
	Secret         string   // whsec_...
	OldSecrets     []string // also sign; the last one until OldUntil
	Types, Sales   []string // filters of its events; empty: all
	Strict         bool     // all its deliveries are sent in the order of their positions; else those of each order
	State          EndpointState
	Reason         string // for its state
	CreatedBy      string // the actor of the context

	OldUntil, FailingSince, HoldUntil, CreatedAt time.Time // zero: none

	LastError   string    // of the last failed attempt, also after later successes; "": there was none
	LastErrorAt time.Time // zero: none

	Revision        int64         // grows when it is resumed or its URL changes; see effectOf
	Failures        int64         // failed attempts in a row
	Waiting, Failed int64         // deliveries; a failed ping is not counted
	Oldest          time.Duration // age of the oldest waiting delivery
}

const endpointColumns = "id, url, title, secret, " +
	"(SELECT coalesce(string_agg(o.secret, ' '), '') FROM webhook_old_secrets o WHERE o.endpoint = id AND o.until > %[1]s), " +
	"(SELECT max(o.until) FROM webhook_old_secrets o WHERE o.endpoint = id AND o.until > %[1]s), " +
	"types, sales, strict, state, reason, created_by, revision, failures, " +
	"failing_since, last_error, last_error_at, CASE WHEN hold_until > %[1]s THEN hold_until END, created_at"

func selectEndpoints(d store.Dialect) string {
	return "SELECT " + fmt.Sprintf(endpointColumns, d.Now) + " FROM webhook_endpoints"
}

func scanEndpoint(row store.Scanner) (e Endpoint, err error) {
	var oldSecrets, types, sales string
	err = row.Scan(&e.ID, &e.URL, &e.Title, &e.Secret, &oldSecrets, store.Time(&e.OldUntil), &types, &sales, &e.Strict,
		&e.State, &e.Reason, &e.CreatedBy, &e.Revision, &e.Failures, store.Time(&e.FailingSince), &e.LastError,
		store.Time(&e.LastErrorAt), store.Time(&e.HoldUntil), store.Time(&e.CreatedAt))
	e.OldSecrets, e.Types, e.Sales = strings.Fields(oldSecrets), strings.Fields(types), strings.Fields(sales)
	return e, err
}

// ErrNoEndpoint reports that no endpoint has the id, and ErrNoDelivery that the endpoint has no delivery with the id.
// Both wrap sale.ErrNotFound.
var (
	ErrNoEndpoint = fmt.Errorf("there is no such endpoint: %w", sale.ErrNotFound)
	ErrNoDelivery = fmt.Errorf("there is no such delivery: %w", sale.ErrNotFound)
)

// missing returns none instead of sale.ErrNotFound, and other errors unchanged.
func missing(err, none error) error {
	if errors.Is(err, sale.ErrNotFound) {
		return none
	}
	return err
}

// isID reports whether a row can have an id. PostgreSQL rejects a query with another text.
func isID(id string) bool { return id == store.Text(id) }

func readEndpoint(ctx context.Context, c store.Conn, id, lock string) (Endpoint, error) {
	if !isID(id) {
		return Endpoint{}, ErrNoEndpoint
	}
	e, err := store.GetRow(ctx, c, scanEndpoint, selectEndpoints(c.Dialect())+" WHERE id = $1"+lock, id)
	return e, missing(err, ErrNoEndpoint)
}

// AddEndpoint stores a new endpoint (ID, URL, Title, Secret, Types, Sales, Strict) and logs it with the actor of the
// context. Errors: sale.ErrExists; a *store.RefusedError if there are maxEndpoints already.
func (s *Store) AddEndpoint(ctx context.Context, e Endpoint) (Endpoint, error) {
	op := "webhook: add endpoint " + e.ID
	return store.Value(ctx, s.db.Update, op, func(ctx context.Context, c store.Conn) (Endpoint, error) {
		// Overlapping transactions would not see each other's endpoints, and add too many.
		if _, err := c.Exec(ctx, c.Dialect().LockText, "webhook endpoints"); err != nil {
			return Endpoint{}, err
		}
		n, err := store.GetRow(ctx, c, store.Column[int64], "SELECT count(*) FROM webhook_endpoints")
		if err == nil && n >= maxEndpoints {
			err = errManyEndpoints
		}
		if err != nil {
			return Endpoint{}, err
		}
		n, err = c.Exec(ctx, `INSERT INTO webhook_endpoints
			(id, url, title, secret, types, sales, strict, created_at, created_by)
			VALUES ($1, $2, $3, $4, $5, $6, $7, `+c.Dialect().Now+`, $8) ON CONFLICT (id) DO NOTHING`,
			e.ID, store.Text(e.URL), store.Text(e.Title), e.Secret, strings.Join(e.Types, " "), strings.Join(e.Sales, " "),
			asInt(e.Strict), store.Text(store.Actor(ctx)))
		if err == nil && n == 0 {
			err = sale.ErrExists
		}
		if err == nil {
			err = store.AppendLog(ctx, c, "webhook.add", e.ID, "")
		}
		if err != nil {
			return Endpoint{}, err
		}
		return readEndpoint(ctx, c, e.ID, "")
	})
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Show returns an endpoint with counts of at most MaxCounted deliveries, or ErrNoEndpoint.
func (s *Store) Show(ctx context.Context, id string) (Endpoint, error) {
	e, err := s.uncounted(ctx, id)
	if err == nil {
		err = s.count(ctx, &e, MaxCounted)
	}
	return e, err
}

// uncounted returns an endpoint without the counts of its deliveries.
func (s *Store) uncounted(ctx context.Context, id string) (Endpoint, error) {
	op := "webhook: endpoint " + id
	return store.Value(ctx, s.db.View, op, func(ctx context.Context, c store.Conn) (Endpoint, error) {
		return readEndpoint(ctx, c, id, "")
	})
}

// Endpoints returns all endpoints, oldest first, without the counts of their deliveries.
func (s *Store) Endpoints(ctx context.Context) ([]Endpoint, error) {
	return store.ViewRows(ctx, s.db, "webhook: endpoints", scanEndpoint,
		selectEndpoints(s.db.Dialect())+" ORDER BY created_at, id")
}

// count sets the counts of e's deliveries; see countFirst.
func (s *Store) count(ctx context.Context, e *Endpoint, limit int64) error {
	return s.db.View(ctx, "webhook: count deliveries of endpoint "+e.ID, func(ctx context.Context, c store.Conn) error {
		return countFirst(ctx, c, e, limit)
	})
}

// countFirst sets the counts of the first deliveries that wait, and of any that failed, up to limit of each.
func countFirst(ctx context.Context, c store.Conn, e *Endpoint, limit int64) error {
	var oldest, now time.Time
	const of = " FROM webhook_deliveries WHERE endpoint_id = $1 AND "
	// In this order and with the bound of number, both engines use the index of waiting deliveries; see pageOfDeliveries.
	waiting := "SELECT count(*), min(created_at), " + c.Dialect().Now +
		" FROM (SELECT created_at" + of + "number > 0 AND state = 1 ORDER BY number LIMIT $2) AS counted"
	err := store.Get(ctx, c, []any{&e.Waiting, store.Time(&oldest), store.Time(&now)}, waiting, e.ID, limit)
	if err != nil {
		return err
	}
	if e.Waiting > 0 {
		e.Oldest = max(now.Sub(oldest), 0)
	}
	const failed = "SELECT count(*) FROM (SELECT 1" + of + "state = 3 AND sequence >= 0 LIMIT $2) AS counted"
	return store.Get(ctx, c, []any{&e.Failed}, failed, e.ID, limit)
}

// ChangeEndpoint calls change, which may modify the URL, Title, Types, Sales, State, Reason and Revision of an
// endpoint, stores the result, logs the action, and returns the result with counts of at most MaxCounted deliveries, in
// one transaction. An endpoint with a new Revision is no longer failing. Errors: ErrNoEndpoint; those of change.
func (s *Store) ChangeEndpoint(ctx context.Context, id, action string, change func(*Endpoint) error) (Endpoint, error) {
	op := fmt.Sprintf("webhook: %s %s", action, id)
	return store.Value(ctx, s.db.Update, op, func(ctx context.Context, c store.Conn) (Endpoint, error) {
		before, err := readEndpoint(ctx, c, id, c.Dialect().ForUpdate)
		if err != nil {
			return before, err
		}
		e := before
		if err := change(&e); err != nil {
			return e, err
		}
		const update = `UPDATE webhook_endpoints SET url = $2, title = $3, types = $4, sales = $5, state = $6, reason = $7,
			revision = $8 WHERE id = $1`
		if _, err := c.Exec(ctx, update, id, store.Text(e.URL), store.Text(e.Title), strings.Join(e.Types, " "),
			strings.Join(e.Sales, " "), string(e.State), store.Text(e.Reason), e.Revision); err != nil {
			return e, err
		}
		if e.Revision != before.Revision {
			const reset = "UPDATE webhook_endpoints SET failures = 0, failing_since = NULL, hold_until = NULL WHERE id = $1"
			if _, err := c.Exec(ctx, reset, id); err != nil {
				return e, err
			}
		}
		if err := store.AppendLog(ctx, c, action, id, ""); err != nil {
			return e, err
		}
		if e, err = readEndpoint(ctx, c, id, ""); err == nil {
			err = countFirst(ctx, c, &e, MaxCounted)
		}
		return e, err
	})
}

// RotateSecret sets a new secret for an endpoint. The old secret also signs, for the duration keep, and so do secrets
// of earlier rotations until their time. If keep is 0, no other secret signs any more. Errors: ErrNoEndpoint;
// a *store.RefusedError if maxOldSecrets old secrets still sign.
func (s *Store) RotateSecret(ctx context.Context, id, secret string, keep time.Duration) error {
	return s.db.Update(ctx, "webhook: rotate secret of endpoint "+id, func(ctx context.Context, c store.Conn) error {
		e, err := readEndpoint(ctx, c, id, c.Dialect().ForUpdate)
		if err != nil {
			return err
		}
		if keep > 0 && len(e.OldSecrets) >= maxOldSecrets {
			return errManySecrets
		}
		_, err = c.Exec(ctx, "DELETE FROM webhook_old_secrets WHERE endpoint = $1 AND (CAST($2 AS bigint) = 0 OR until <= "+
			c.Dialect().Now+")", id, keep.Milliseconds())
		if err != nil {
			return err
		}
		if keep > 0 {
			_, err := c.Exec(ctx, "INSERT INTO webhook_old_secrets (endpoint, secret, until) VALUES ($1, $2, "+
				c.Dialect().Ago("$3")+")", id, e.Secret, -keep.Milliseconds())
			if err != nil {
				return err
			}
		}
		if _, err := c.Exec(ctx, "UPDATE webhook_endpoints SET secret = $2 WHERE id = $1", id, secret); err != nil {
			return err
		}
		return store.AppendLog(ctx, c, "webhook.rotate", id, "the old secret signs for "+duration.Text(keep))
	})
}

const removedEndpoint = "webhook.remove" // in the action log

// Remove deletes an endpoint. Its deliveries and their attempts are deleted by the next PruneDeliveries. It is
// idempotent: an endpoint that an earlier call removed is a success. Error: ErrNoEndpoint.
func (s *Store) Remove(ctx context.Context, id string) error {
	return s.db.Update(ctx, "webhook: remove endpoint "+id, func(ctx context.Context, c store.Conn) error {
		if !isID(id) {
			return ErrNoEndpoint
		}
		n, err := c.Exec(ctx, "DELETE FROM webhook_endpoints WHERE id = $1", id)
		if err != nil {
			return err
		}
		if n == 0 {
			return missing(store.RequireLogged(ctx, c, removedEndpoint, id), ErrNoEndpoint)
		}
		return store.AppendLog(ctx, c, removedEndpoint, id, "")
	})
}
