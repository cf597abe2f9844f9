package store

import (
	"context"
	"fmt"
	"time"
)

// DeliveryQuery selects deliveries of an endpoint.
type DeliveryQuery struct {
	EndpointID string
	State      DeliveryState // 0: any
	Before     int64         // lower numbers only; 0: all
	Limit      int           // 1 to 1000; 0: 100
}

const deliveryColumns = "number, id, endpoint_id, position, sequence, type, body, state, attempts, fence, due_at, created_at, ended_at, CASE WHEN state = 1 AND leased_until > %s THEN 1 ELSE 0 END"

func (s *Store) deliveries(ctx context.Context, where string, args ...any) (found []Delivery, err error) {
	err = s.engine.direct().query(ctx, func(r row) error {
		var v Delivery
		var due, created, ended instant
		var leased int64
		err := r.Scan(&v.Number, &v.ID, &v.EndpointID, &v.Position, &v.Sequence, &v.Type, &v.Body, &v.State, &v.Attempts, &v.Fence, &due, &created, &ended, &leased)
		v.DueAt, v.CreatedAt, v.EndedAt, v.Leased = due.Time, created.Time, ended.Time, leased == 1
		found = append(found, v)
		return err
	}, "SELECT "+fmt.Sprintf(deliveryColumns, s.engine.dialect().now)+" FROM webhook_deliveries WHERE "+where, args...)
	return found, err
}

// Deliveries returns one page of an endpoint's deliveries, the newest first.
func (s *Store) Deliveries(ctx context.Context, q DeliveryQuery) ([]Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if q.Before <= 0 {
		q.Before = Anywhere
	}
	state := ""
	if q.State != 0 {
		state = fmt.Sprintf(" AND state = %d", q.State) // written out, so that the index of such a state is used
	}
	found, err := s.deliveries(ctx, "endpoint_id = $1 AND number < $2"+state+" ORDER BY number DESC LIMIT $3", q.EndpointID, q.Before, pageOf(q.Limit))
	if err != nil {
		return nil, fmt.Errorf("order: deliveries of endpoint %s: %w", q.EndpointID, err)
	}
	return found, nil
}

// DeliveryAttempt is one line of a delivery's log.
type DeliveryAttempt struct {
	Number int64 // ascending; one that nobody knows the end of is missing
	At     time.Time
	Took   time.Duration
	Status int    // of HTTP; 0: there was no answer
	Error  string // "" if it was delivered
	Answer string // the beginning of it
}

// Delivery returns a delivery and its last 100 attempts, the oldest first, or sale.ErrNotFound.
func (s *Store) Delivery(ctx context.Context, id string) (Delivery, []DeliveryAttempt, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	found, err := s.deliveries(ctx, "id = $1", id)
	if err == nil && len(found) == 0 {
		err = notFound(errNoRow)
	}
	var log []DeliveryAttempt
	if err == nil {
		err = s.engine.direct().query(ctx, func(r row) error {
			var a DeliveryAttempt
			var at instant
			var ms int64
			err := r.Scan(&a.Number, &at, &ms, &a.Status, &a.Error, &a.Answer)
			a.At, a.Took = at.Time, time.Duration(ms)*time.Millisecond
			log = append(log, a)
			return err
		}, `SELECT number, at, ms, status, error, answer FROM (SELECT * FROM webhook_attempts WHERE delivery_id = $1 ORDER BY number DESC LIMIT 100) AS last ORDER BY number`, id)
	}
	if err != nil {
		return Delivery{}, nil, fmt.Errorf("order: delivery %s: %w", id, err)
	}
	return found[0], log, nil
}
