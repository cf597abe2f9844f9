package webhook

import (
	"context"
	"time"

	"sluice/backend/store"
)

// DeliveryState is the state of a delivery.
type DeliveryState int

// The states of a delivery, as the tables store them.
const (
	DeliveryWaiting   DeliveryState = 1
	DeliveryDelivered DeliveryState = 2
	DeliveryFailed    DeliveryState = 3 // given up, until an admin requests a redelivery
)

// Deliveries of one endpoint and sequence are sent one after the other, in the order of their positions. The sequence
// of an order's deliveries is the order id; these are the others.
const (
	SequenceStrict    int64 = 0  // all events of a strict endpoint
	SequenceUnordered int64 = -1 // no order; sent to paused endpoints too, and during a hold
)

// Delivery is an event for an endpoint.
type Delivery struct {
	Number     int64  // ascending in the order of insertion
	ID         string // the webhook-id: the same for every delivery of an event to an endpoint
	EndpointID string
	Position   int64
	Sequence   int64
	Type       string
	Body       string // as it is sent
	State      DeliveryState
	Attempts   int   // ended attempts, since it began to wait
	Fence      int64 // number of its last lease
	// Probe is how long the lease holds a failing endpoint, to test with this delivery alone whether it works again; 0: it
	// does not.
	Probe    time.Duration
	Revision int64 // of its endpoint when it was leased; 0 otherwise

	CreatedAt, DueAt, EndedAt time.Time // EndedAt: zero while it waits
	Leased                    bool      // it is being sent
	Interrupted               bool      // when it was leased, its last lease had expired without a result
}

// inOrderSequence is the condition for waiting deliveries of table in the sequence of an order, at an endpoint.
// endpoint_id with an empty text appended matches no index, so that PostgreSQL uses the index by sequence. Otherwise,
// while it has no statistics of a table that a burst has just filled, it would prefer an index by endpoint, and read
// all waiting deliveries of the endpoint for each delivery. Other statements that need few deliveries of an endpoint
// use the same expression.
func inOrderSequence(table, sequence, endpoint string) string {
	return table + ".state = 1 AND " + table + ".sequence > 0 AND " + table + ".sequence = " + sequence +
		" AND " + table + ".endpoint_id || '' = " + endpoint
}

// NewDelivery is a delivery to be stored, and its record in the statement. Its texts are results of store.Text.
type NewDelivery struct {
	ID         string `json:"id"`
	EndpointID string `json:"endpoint_id"`
	Position   int64  `json:"position"`
	Sequence   int64  `json:"sequence"`
	Type       string `json:"type"`
	Body       string `json:"body"`
}

const deliveryRecord = "id text, endpoint_id text, position bigint, sequence bigint, type text, body text"

// AddDeliveries stores deliveries and returns how many were new. A delivery is due immediately or, if earlier
// deliveries of its order wait for a later time, not before the latest of these times. A stored delivery is left
// unchanged.
func (s *Store) AddDeliveries(ctx context.Context, all []NewDelivery) (added int64, err error) {
	if len(all) == 0 {
		return 0, nil
	}
	d := s.db.Dialect()
	return store.UpdateRows(ctx, s.db, "webhook: add deliveries", `INSERT INTO webhook_deliveries
			(id, endpoint_id, position, sequence, type, body, created_at, due_at)
		SELECT added.id, added.endpoint_id, added.position, added.sequence, added.type, added.body, `+d.Now+`,
			coalesce(CASE WHEN added.sequence > 0 THEN (SELECT max(ahead.due_at) FROM webhook_deliveries AS ahead
				WHERE `+inOrderSequence("ahead", "added.sequence", "added.endpoint_id")+`
					AND ahead.due_at > `+d.Now+`) END, `+d.Now+`)
		FROM (`+d.Records("$1", deliveryRecord)+`) AS added
		WHERE true ORDER BY added.position, added.endpoint_id ON CONFLICT (id) DO NOTHING`, store.JSON(all))
}

// DueEndpoints returns the ids of the endpoints that may have a due delivery, except those in served.
func (s *Store) DueEndpoints(ctx context.Context, served []string) ([]string, error) {
	d := s.db.Dialect()
	const due = "SELECT number FROM webhook_deliveries AS d WHERE d.endpoint_id = e.id AND d.state = 1 AND "
	return store.ViewRows(ctx, s.db, "webhook: due endpoints", store.Column[string], `SELECT id FROM webhook_endpoints AS e
		WHERE state <> 'disabled' AND NOT id `+d.In("$1")+` AND (
			(`+due+`d.sequence < 0 LIMIT 1) IS NOT NULL
			OR state = 'active' AND (hold_until IS NULL OR hold_until <= `+d.Now+`)
				AND (`+due+`d.due_at <= `+d.Now+` AND d.due_at >= `+d.Millis(`coalesce((SELECT bound.due_ms
					FROM (`+d.Records("$2", "endpoint text, due_ms bigint")+`) AS bound WHERE bound.endpoint = e.id), 0)`)+`
					ORDER BY d.due_at LIMIT 1) IS NOT NULL)
		ORDER BY id`, append([]string{}, served...), store.JSON(s.dueFrom()))
}

// LeaseDeliveries leases up to limit due deliveries of an endpoint with positions up to upTo, at most the first waiting
// one of each sequence, and returns them with the endpoint. A lease that expires, by the database's clock, makes a
// delivery available again, to a scan from the beginning; see events.ScanBound. Error: ErrNoEndpoint.
func (s *Store) LeaseDeliveries(
	ctx context.Context, endpointID string, upTo int64, lease time.Duration, limit int,
) (e Endpoint, leased []Delivery, err error) {
	op, bound := "webhook: lease deliveries of endpoint "+endpointID, s.bound(endpointID)
	from := bound.Next(s.now())
	var now time.Time
	err = s.db.Update(ctx, op, func(ctx context.Context, c store.Conn) error {
		d := c.Dialect()
		if e, err = readEndpoint(ctx, c, endpointID, d.ForUpdate); err != nil || e.State == EndpointDisabled {
			return err
		}
		unordered := e.State != EndpointActive || !e.HoldUntil.IsZero() // only SequenceUnordered is sent now
		probe := e.Failures >= breakAfter && !unordered
		if probe {
			limit = 1
		}
		which, args, err := leasable(ctx, c, e, unordered, from)
		if err != nil || which == "" {
			return err
		}
		// The lock of the endpoint excludes other changes of the rows until the update.
		leased, err = store.Select(ctx, c, func(row store.Scanner) (Delivery, error) {
			v := Delivery{EndpointID: endpointID, State: DeliveryWaiting, Leased: true, Revision: e.Revision}
			err := row.Scan(&v.Number, &v.ID, &v.Position, &v.Sequence, &v.Type, &v.Body, &v.Attempts, &v.Fence,
				store.Time(&v.DueAt), &v.Interrupted, store.Time(&now))
			return v, err
		}, `SELECT number, id, position, sequence, type, body, attempts, fence + 1, due_at, leased_until IS NOT NULL, `+
			d.Now+` FROM webhook_deliveries AS d WHERE due_at <= `+d.Now+` AND position <= $2
				AND (leased_until IS NULL OR leased_until <= `+d.Now+`) AND `+which+` ORDER BY due_at, position LIMIT $3`,
			append([]any{endpointID, upTo, limit}, args...)...)
		if err != nil || len(leased) == 0 {
			return err
		}
		if err := markLeased(ctx, c, leased, lease); err != nil {
			return err
		}
		if probe && !leased[0].Interrupted { // no other sender tries until this attempt has ended
			leased[0].Probe = lease
			return holdEndpoint(ctx, c, endpointID, lease)
		}
		return nil
	})
	if err != nil {
		return Endpoint{}, nil, err
	}
	advance(bound, leased, now)
	return e, leased, nil
}

// leasable returns the condition for the waiting deliveries of the endpoint $1 that may be sent when they are due, and
// its arguments from $4 on; "" if there are none. With unordered, those are the deliveries in SequenceUnordered.
func leasable(
	ctx context.Context, c store.Conn, e Endpoint, unordered bool, from leaseKey,
) (which string, args []any, err error) {
	if unordered || e.Strict {
		numbers, err := sendableNow(ctx, c, e.ID, !unordered, from.position)
		if err != nil || len(numbers) == 0 {
			return "", nil, err
		}
		// With state + 0, as with the expression of inOrderSequence, no index but that by number matches.
		return "state + 0 = 1 AND endpoint_id || '' = $1 AND number " + c.Dialect().In("$4"), []any{numbers}, nil
	}
	which = "state = 1 AND endpoint_id = $1 AND NOT EXISTS (SELECT 1 FROM webhook_deliveries AS ahead WHERE " +
		inOrderSequence("ahead", "d.sequence", "d.endpoint_id") + " AND ahead.position < d.position)"
	if from != (leaseKey{}) {
		which += " AND (due_at, position) > ($4, $5)"
		args = []any{from.due, from.position}
	}
	return which, args, nil
}

// markLeased begins the leases of deliveries.
func markLeased(ctx context.Context, c store.Conn, all []Delivery, lease time.Duration) error {
	numbers := make([]int64, len(all))
	for i, v := range all {
		numbers[i] = v.Number
	}
	_, err := c.Exec(ctx, "UPDATE webhook_deliveries SET fence = fence + 1, leased_until = "+c.Dialect().Ago("$1")+
		" WHERE number "+c.Dialect().In("$2"), -lease.Milliseconds(), numbers)
	return err
}

// holdEndpoint suspends an endpoint's deliveries for a duration.
func holdEndpoint(ctx context.Context, c store.Conn, id string, hold time.Duration) error {
	_, err := c.Exec(ctx, "UPDATE webhook_endpoints SET hold_until = "+c.Dialect().Ago("$2")+" WHERE id = $1",
		id, -hold.Milliseconds())
	return err
}

// sendableNow returns the numbers of an endpoint's waiting deliveries in SequenceUnordered and, with strict, of the
// first in SequenceStrict with a position of at least from.
func sendableNow(ctx context.Context, c store.Conn, endpointID string, strict bool, from int64) ([]int64, error) {
	query, args := "SELECT number FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 1 AND sequence < 0",
		[]any{endpointID}
	if strict {
		query = `SELECT number FROM (SELECT number FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 1
			AND sequence = 0 AND position >= $2 ORDER BY position, number LIMIT 1) AS first UNION ALL ` + query
		args = append(args, from)
	}
	return store.Select(ctx, c, store.Column[int64], query, args...)
}

// PruneDeliveries deletes, with their attempts, up to limit deliveries that were delivered longer ago than keep, pings
// that failed longer ago, and deliveries of a removed endpoint. Other deliveries stay, regardless of their age. It
// returns how many it deleted.
func (s *Store) PruneDeliveries(ctx context.Context, keep time.Duration, limit int) (int, error) {
	const op = "webhook: prune deliveries"
	return store.Value(ctx, s.db.Update, op, func(ctx context.Context, c store.Conn) (int, error) {
		d := c.Dialect()
		var ids []string
		find := func(query string, args ...any) error {
			more, err := store.Select(ctx, c, store.Column[string], query, append([]any{limit - len(ids)}, args...)...)
			ids = append(ids, more...)
			return err
		}
		// A delivery that an admin redelivers at the same time is locked and stays.
		ended := " AND ended_at < " + d.Ago("$2")
		err := find("SELECT id FROM webhook_deliveries WHERE state = 2"+ended+" ORDER BY ended_at LIMIT $1"+d.SkipLocked,
			keep.Milliseconds())
		if err == nil { // pings are a range in the index of the ids: the character ` follows _
			err = find("SELECT id FROM webhook_deliveries WHERE id >= '"+pingPrefix+"' AND id < 'ping`' AND state = 3"+
				" AND sequence < 0"+ended+" LIMIT $1"+d.SkipLocked, keep.Milliseconds())
		}
		if err == nil {
			// The recursion finds each endpoint that has deliveries with one index lookup, however many deliveries there are.
			err = find(`WITH RECURSIVE owner (id) AS (
					SELECT (SELECT min(endpoint_id) FROM webhook_deliveries)
					UNION ALL SELECT (SELECT min(endpoint_id) FROM webhook_deliveries WHERE endpoint_id > owner.id)
					FROM owner WHERE owner.id IS NOT NULL
				) SELECT d.id FROM owner JOIN webhook_deliveries AS d ON d.endpoint_id = owner.id
				WHERE owner.id IS NOT NULL
					AND NOT EXISTS (SELECT 1 FROM webhook_endpoints WHERE webhook_endpoints.id = owner.id) LIMIT $1`)
		}
		if err != nil || len(ids) == 0 {
			return 0, err
		}
		if _, err := c.Exec(ctx, "DELETE FROM webhook_attempts WHERE delivery_id "+d.In("$1"), ids); err != nil {
			return 0, err
		}
		_, err = c.Exec(ctx, "DELETE FROM webhook_deliveries WHERE id "+d.In("$1"), ids)
		return len(ids), err
	})
}

// HasWaiting reports whether deliveries of a sale's events wait. Those of a removed endpoint are not sent and do not
// count.
func (s *Store) HasWaiting(ctx context.Context, saleID string) (bool, error) {
	query := "SELECT 1 FROM webhook_deliveries AS d WHERE state = 1 AND " + s.db.Dialect().Contains("body", "$1") +
		" AND EXISTS (SELECT 1 FROM webhook_endpoints AS e WHERE e.id = d.endpoint_id) LIMIT 1"
	found, err := store.ViewRows(ctx, s.db, "webhook: waiting deliveries of sale "+saleID, store.Column[int], query,
		`"sale_id":"`+saleID+`"`)
	return len(found) > 0, err
}
