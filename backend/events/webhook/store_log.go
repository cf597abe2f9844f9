package webhook

import (
	"context"
	"fmt"
	"math"
	"time"

	"sluice/backend/store"
)

// DeliveryQuery selects deliveries of an endpoint.
type DeliveryQuery struct {
	EndpointID string
	State      DeliveryState // 0: any
	Before     int64         // lower numbers only; 0: all
	Limit      int           // see store.PageSize
}

const deliveryColumns = "number, id, endpoint_id, position, sequence, type, body, state, attempts, fence, due_at, " +
	"created_at, ended_at, CASE WHEN state = 1 AND leased_until > %s THEN 1 ELSE 0 END"

func selectDeliveries(d store.Dialect) string {
	return "SELECT " + fmt.Sprintf(deliveryColumns, d.Now) + " FROM webhook_deliveries"
}

func scanDelivery(row store.Scanner) (v Delivery, err error) {
	err = row.Scan(&v.Number, &v.ID, &v.EndpointID, &v.Position, &v.Sequence, &v.Type, &v.Body, &v.State, &v.Attempts,
		&v.Fence, store.Time(&v.DueAt), store.Time(&v.CreatedAt), store.Time(&v.EndedAt), &v.Leased)
	return v, err
}

// Deliveries returns one page of an endpoint's deliveries, newest first. Error: ErrNoEndpoint.
func (s *Store) Deliveries(ctx context.Context, q DeliveryQuery) ([]Delivery, error) {
	if _, err := s.uncounted(ctx, q.EndpointID); err != nil {
		return nil, err
	}
	query, args := pageOfDeliveries(s.db.Dialect(), q)
	return store.ViewRows(ctx, s.db, "webhook: deliveries of endpoint "+q.EndpointID, scanDelivery, query, args...)
}

func pageOfDeliveries(d store.Dialect, q DeliveryQuery) (query string, args []any) {
	if q.Before <= 0 {
		q.Before = math.MaxInt64
	}
	var f store.Filter
	f.Add("endpoint_id = ?", q.EndpointID)
	f.Add("number < ?", q.Before)
	// A constant, so that the partial index of the state is used. Without the lower bound, SQLite prefers the index of all
	// deliveries.
	if q.State != 0 {
		f.AddConstant(fmt.Sprintf("number > 0 AND state = %d", q.State))
	}
	return selectDeliveries(d) + f.Page("number DESC", q.Limit), f.Args
}

// DeliveryAttempt is one ended attempt of a delivery.
type DeliveryAttempt struct {
	Number  int64     `json:"number"` // ascending; released attempts are missing
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`         // its duration
	Status  int       `json:"status"`          // of HTTP; 0: there was no response
	Error   string    `json:"error,omitempty"` // "" if it was delivered
	Answer  string    `json:"answer"`          // the beginning of the response
}

// Delivery returns a delivery of an endpoint and its last 100 attempts, oldest first, or ErrNoDelivery.
func (s *Store) Delivery(
	ctx context.Context, endpointID, id string,
) (d Delivery, attempts []DeliveryAttempt, err error) {
	err = s.db.View(ctx, "webhook: delivery "+id, func(ctx context.Context, c store.Conn) error {
		if !isID(id) {
			return ErrNoDelivery
		}
		find := selectDeliveries(c.Dialect()) + " WHERE id = $1 AND endpoint_id = $2"
		if d, err = store.GetRow(ctx, c, scanDelivery, find, id, endpointID); err != nil {
			return missing(err, ErrNoDelivery)
		}
		attempts, err = store.Select(ctx, c, func(row store.Scanner) (a DeliveryAttempt, err error) {
			var ms int64
			err = row.Scan(&a.Number, store.Time(&a.At), &ms, &a.Status, &a.Error, &a.Answer)
			a.Seconds = float64(ms) / 1000
			return a, err
		}, `SELECT number, at, duration_ms, status, error, response
			FROM (SELECT * FROM webhook_attempts WHERE delivery_id = $1 ORDER BY number DESC LIMIT 100) AS last
			ORDER BY number`, id)
		return err
	})
	return d, attempts, err
}

// Redeliver makes a delivery of an endpoint due now, in any state, with the same id and body, and logs it with the
// actor and the reason of the context. A delivery that is being sent is left unchanged, and nothing is logged. Errors:
// ErrNoEndpoint, ErrNoDelivery; a *store.RefusedError if the endpoint is disabled.
func (s *Store) Redeliver(ctx context.Context, endpointID, id string) error {
	return s.db.Update(ctx, "webhook: redeliver "+id, func(ctx context.Context, c store.Conn) error {
		if !isID(id) {
			return ErrNoDelivery
		}
		if err := lockEnabled(ctx, c, endpointID); err != nil {
			return err
		}
		const which = " WHERE id = $1 AND endpoint_id = $2"
		now := c.Dialect().Now
		n, err := c.Exec(ctx, "UPDATE webhook_deliveries SET state = 1, attempts = 0, due_at = "+now+
			", ended_at = NULL, leased_until = NULL"+which+" AND (leased_until IS NULL OR leased_until <= "+now+")",
			id, endpointID)
		if err == nil && n == 0 { // it is being sent, or does not exist
			err = store.Get(ctx, c, []any{&n}, "SELECT number FROM webhook_deliveries"+which, id, endpointID)
			return missing(err, ErrNoDelivery)
		}
		if err != nil {
			return err
		}
		return store.AppendLog(ctx, c, "webhook.redeliver", id, "endpoint "+endpointID)
	})
}

// lockEnabled locks an endpoint, or returns errDisabled.
func lockEnabled(ctx context.Context, c store.Conn, endpointID string) error {
	e, err := readEndpoint(ctx, c, endpointID, c.Dialect().ForUpdate)
	if err == nil && e.State == EndpointDisabled {
		err = errDisabled
	}
	return err
}

// RedeliverFailed makes up to limit of an endpoint's deliveries that were given up since a time due now, oldest first,
// logs it, and returns how many. It skips pings. Errors are those of Redeliver.
func (s *Store) RedeliverFailed(
	ctx context.Context, endpointID string, since time.Time, limit int,
) (int64, error) {
	op := "webhook: redeliver failed deliveries of endpoint " + endpointID
	return store.Value(ctx, s.db.Update, op, func(ctx context.Context, c store.Conn) (int64, error) {
		if err := lockEnabled(ctx, c, endpointID); err != nil {
			return 0, err
		}
		n, err := c.Exec(ctx, `UPDATE webhook_deliveries
			SET state = 1, attempts = 0, due_at = `+c.Dialect().Now+`, ended_at = NULL
			WHERE number IN (SELECT number FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 3 AND ended_at >= $2
				AND sequence >= 0 ORDER BY number LIMIT $3)`, endpointID, since, limit)
		if err != nil || n == 0 {
			return n, err
		}
		return n, store.AppendLog(ctx, c, "webhook.redeliver", endpointID, fmt.Sprintf("%d failed deliveries", n))
	})
}
