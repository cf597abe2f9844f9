package store

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// DeliveryState is what has become of a delivery.
type DeliveryState int

// The states of a delivery, as the tables have them.
const (
	DeliveryWaiting   DeliveryState = 1
	DeliveryDelivered DeliveryState = 2
	DeliveryFailed    DeliveryState = 3 // given up, until a person wants it sent again
)

// Deliveries of one endpoint and sequence go one after the other, in the order of their positions. The sequence of an order is its id; these are the others.
const (
	SequenceStrict int64 = 0  // of all events of an endpoint that wants them in strict order
	SequenceFree   int64 = -1 // no order at all; sent to paused endpoints too, and while an endpoint is held
)

// Anywhere is a position behind all others.
const Anywhere int64 = math.MaxInt64

// Delivery is an event that an endpoint is to be told of.
type Delivery struct {
	Number     int64  // ascending with the time it was added
	ID         string // the webhook-id: the same event for the same endpoint has the same
	EndpointID string
	Position   int64
	Sequence   int64
	Type       string
	Body       string // as it is sent
	State      DeliveryState
	Attempts   int   // that ended, since it waits
	Fence      int64 // of its last lease
	Probe      bool  // leased alone, to see whether an endpoint that failed works again

	CreatedAt, DueAt, EndedAt time.Time // EndedAt: zero while it waits
	Leased                    bool      // it is being sent
}

// ofOrder selects the deliveries of table that wait in the sequence of an order, at an endpoint. The planner of PostgreSQL must find them by their sequence, whatever it knows of
// the table: by an index of the endpoint's it would look at all that wait there, for each delivery, and of a table that a flood has just filled it knows nothing yet. So
// the endpoint is written as no index has it, here and wherever only few of an endpoint's deliveries are meant.
func ofOrder(table, sequence, endpoint string) string {
	return table + ".state = 1 AND " + table + ".sequence > 0 AND " + table + ".sequence = " + sequence + " AND " + table + ".endpoint_id || '' = " + endpoint
}

// AddDeliveries adds those that are not there yet (ID, EndpointID, Position, Sequence, Type, Body), due at once, or when what is ahead of them in their sequence is. To
// add them again changes nothing, whatever has become of them.
func (s *Store) AddDeliveries(ctx context.Context, all []Delivery) (added int64, err error) {
	if len(all) == 0 {
		return 0, nil
	}
	type line struct {
		ID       string `json:"i"`
		Endpoint string `json:"e"`
		Position int64  `json:"p"`
		Sequence int64  `json:"l"`
		Type     string `json:"t"`
		Body     string `json:"b"`
	}
	lines := make([]line, len(all))
	for i, d := range all {
		lines[i] = line{storable(d.ID), d.EndpointID, d.Position, d.Sequence, storable(d.Type), storable(d.Body)}
	}
	list, err := json.Marshal(lines)
	if err == nil {
		err = s.change(ctx, func(ctx context.Context, db conn) (err error) {
			d := s.engine.dialect()
			added, err = db.exec(ctx, `INSERT INTO webhook_deliveries (id, endpoint_id, position, sequence, type, body, created_at, due_at)
				SELECT i, e, p, l, t, b, `+d.now+`, coalesce(CASE WHEN l > 0 THEN (SELECT max(ahead.due_at) FROM webhook_deliveries AS ahead
					WHERE `+ofOrder("ahead", "l", "e")+`) END, `+d.now+`)
				FROM (`+d.deliveries+`) AS line WHERE true ORDER BY p, e ON CONFLICT (id) DO NOTHING`, string(list))
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("order: add deliveries: %w", err)
	}
	return added, nil
}

// DueEndpoints returns the ids of the endpoints for which something may be due.
func (s *Store) DueEndpoints(ctx context.Context) (ids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	now := s.engine.dialect().now
	err = s.engine.direct().query(ctx, func(r row) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	}, `SELECT id FROM webhook_endpoints AS e WHERE state <> 'disabled' AND (
			(SELECT number FROM webhook_deliveries AS d WHERE d.endpoint_id = e.id AND d.state = 1 AND d.sequence < 0 LIMIT 1) IS NOT NULL
			OR state = 'active' AND (hold_until IS NULL OR hold_until <= `+now+`)
				AND (SELECT number FROM webhook_deliveries AS d WHERE d.endpoint_id = e.id AND d.state = 1 AND d.due_at <= `+now+` ORDER BY d.due_at LIMIT 1) IS NOT NULL)
		ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("order: due endpoints: %w", err)
	}
	return ids, nil
}

// LeaseDeliveries takes up to limit deliveries of an endpoint that are due, for as long as the lease, by the database's clock; somebody else gets them when it runs
// out. Of each sequence it takes the first that waits only, and none with a position above upTo. It returns the endpoint too. Error: sale.ErrNotFound.
func (s *Store) LeaseDeliveries(ctx context.Context, endpointID string, upTo int64, lease time.Duration, limit int) (e Endpoint, leased []Delivery, err error) {
	err = s.change(ctx, func(ctx context.Context, db conn) error {
		leased = nil
		d := s.engine.dialect()
		if e, err = s.endpoint(ctx, db, endpointID, d.forUpdate); err != nil || e.State == EndpointDisabled {
			return err
		}
		free := e.State != EndpointActive || !e.HoldUntil.IsZero() // only what goes always
		if e.Failures >= BreakAfter && !free {
			limit = 1
		}
		which := "endpoint_id = $1 AND NOT EXISTS (SELECT 1 FROM webhook_deliveries AS ahead WHERE " + ofOrder("ahead", "d.sequence", "d.endpoint_id") + " AND ahead.position < d.position)"
		args := []any{endpointID, -lease.Milliseconds(), upTo, limit}
		if free || e.Strict {
			few, err := s.fewWaiting(ctx, db, endpointID, !free)
			if err != nil || len(few) == 0 {
				return err
			}
			which, args = "endpoint_id || '' = $1 AND number "+d.among("$5"), append(args, few)
		}
		if err := db.query(ctx, func(r row) error {
			v := Delivery{EndpointID: endpointID, State: DeliveryWaiting, Leased: true, Probe: e.Failures >= BreakAfter && !free}
			err := r.Scan(&v.Number, &v.ID, &v.Position, &v.Sequence, &v.Type, &v.Body, &v.Attempts, &v.Fence)
			leased = append(leased, v)
			return err
		}, `UPDATE webhook_deliveries SET fence = fence + 1, leased_until = `+d.ago("$2")+` WHERE state = 1 AND number IN (
				SELECT number FROM webhook_deliveries AS d WHERE state = 1 AND due_at <= `+d.now+` AND position <= $3
					AND (leased_until IS NULL OR leased_until <= `+d.now+`) AND `+which+` ORDER BY due_at, position LIMIT $4)
			RETURNING number, id, position, sequence, type, body, attempts, fence`, args...); err != nil {
			return err
		}
		if e.Failures >= BreakAfter && !free && len(leased) > 0 { // nobody else tries until this one has ended
			_, err := db.exec(ctx, "UPDATE webhook_endpoints SET hold_until = "+d.ago("$2")+" WHERE id = $1", endpointID, -lease.Milliseconds())
			return err
		}
		return nil
	})
	if err != nil {
		return Endpoint{}, nil, fmt.Errorf("order: lease deliveries of endpoint %s: %w", endpointID, err)
	}
	return e, leased, nil
}

// fewWaiting finds those deliveries of an endpoint that wait and may go in any order, and, with head, the first of those that go in strict order.
func (s *Store) fewWaiting(ctx context.Context, db conn, endpointID string, head bool) (numbers []int64, err error) {
	which := "SELECT number FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 1 AND sequence < 0"
	if head {
		which = `SELECT number FROM (SELECT number FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 1 AND sequence = 0 ORDER BY position, number LIMIT 1) AS head
			UNION ALL ` + which
	}
	err = db.query(ctx, func(r row) error {
		var n int64
		err := r.Scan(&n)
		numbers = append(numbers, n)
		return err
	}, which, endpointID)
	return numbers, err
}
