package order

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"sluice/backend/sale"
)

// DeliveryState is what has become of a delivery.
type DeliveryState int

// The states of a delivery, as the tables have them.
const (
	DeliveryWaiting   DeliveryState = 1
	DeliveryDelivered DeliveryState = 2
	DeliveryFailed    DeliveryState = 3 // given up, until a person wants it sent again
)

// Deliveries of one endpoint and lane go one after the other, in the order of their positions. The lane of an order is its id; these are the others.
const (
	LaneStrict int64 = 0  // of all events of an endpoint that wants them in strict order
	LaneFree   int64 = -1 // no order at all; sent to paused endpoints too, and while an endpoint is held
)

// Anywhere is a position behind all others.
const Anywhere int64 = math.MaxInt64

// Delivery is an event that an endpoint is to be told of.
type Delivery struct {
	Number     int64  // ascending with the time it was added
	ID         string // the webhook-id: the same event for the same endpoint has the same
	EndpointID string
	Position   int64
	Lane       int64
	Type       string
	Body       string // as it is sent
	State      DeliveryState
	Attempts   int   // that ended, since it waits
	Fence      int64 // of its last lease
	Probe      bool  // leased alone, to see whether an endpoint that failed works again

	CreatedAt, DueAt, EndedAt time.Time // EndedAt: zero while it waits
	Leased                    bool      // it is being sent
}

// AddDeliveries adds those that are not there yet (ID, EndpointID, Position, Lane, Type, Body), due at once, or when what is ahead of them in their lane is. To
// add them again changes nothing, whatever has become of them.
func (s *Store) AddDeliveries(ctx context.Context, all []Delivery) (added int64, err error) {
	if len(all) == 0 {
		return 0, nil
	}
	type line struct {
		ID       string `json:"i"`
		Endpoint string `json:"e"`
		Position int64  `json:"p"`
		Lane     int64  `json:"l"`
		Type     string `json:"t"`
		Body     string `json:"b"`
	}
	lines := make([]line, len(all))
	for i, d := range all {
		lines[i] = line{storable(d.ID), d.EndpointID, d.Position, d.Lane, storable(d.Type), storable(d.Body)}
	}
	list, err := json.Marshal(lines)
	if err == nil {
		err = s.change(ctx, func(ctx context.Context, db conn) (err error) {
			d := s.engine.dialect()
			added, err = db.exec(ctx, `INSERT INTO webhook_deliveries (id, endpoint_id, position, lane, type, body, created_at, due_at)
				SELECT i, e, p, l, t, b, `+d.now+`, coalesce(CASE WHEN l > 0 THEN (SELECT max(ahead.due_at) FROM webhook_deliveries AS ahead
					WHERE ahead.endpoint_id = e AND ahead.lane = l AND ahead.state = 1) END, `+d.now+`)
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
			EXISTS (SELECT 1 FROM webhook_deliveries AS d WHERE d.endpoint_id = e.id AND d.state = 1 AND d.lane < 0)
			OR state = 'active' AND (hold_until IS NULL OR hold_until <= `+now+`)
				AND EXISTS (SELECT 1 FROM webhook_deliveries AS d WHERE d.endpoint_id = e.id AND d.state = 1 AND d.due_at <= `+now+`))
		ORDER BY id`)
	if err != nil {
		return nil, fmt.Errorf("order: due endpoints: %w", err)
	}
	return ids, nil
}

// BreakAfter is after how many failures in a row an endpoint is tried with one delivery at a time, and pauses between them.
const BreakAfter = 20

// LeaseDeliveries takes up to limit deliveries of an endpoint that are due, for as long as the lease, by the database's clock; somebody else gets them when it runs
// out. Of each lane it takes the first that waits only, and none with a position above upTo. It returns the endpoint too. Error: sale.ErrNotFound.
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
		const head = `SELECT number FROM (SELECT number FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 1 AND lane = 0 ORDER BY position, number LIMIT 1) AS head`
		const free0 = `SELECT number FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 1 AND lane < 0`
		which := ` AND NOT EXISTS (SELECT 1 FROM webhook_deliveries AS ahead WHERE ahead.endpoint_id = d.endpoint_id AND ahead.lane = d.lane AND ahead.state = 1
			AND ahead.position < d.position AND d.lane > 0)`
		switch {
		case free:
			which = " AND lane < 0"
		case e.Strict:
			which = " AND number IN (" + head + " UNION ALL " + free0 + ")"
		}
		if err := db.query(ctx, func(r row) error {
			v := Delivery{EndpointID: endpointID, State: DeliveryWaiting, Leased: true, Probe: e.Failures >= BreakAfter && !free}
			err := r.Scan(&v.Number, &v.ID, &v.Position, &v.Lane, &v.Type, &v.Body, &v.Attempts, &v.Fence)
			leased = append(leased, v)
			return err
		}, `UPDATE webhook_deliveries SET fence = fence + 1, leased_until = `+d.ago("$2")+` WHERE state = 1 AND number IN (
				SELECT number FROM webhook_deliveries AS d WHERE endpoint_id = $1 AND state = 1 AND due_at <= `+d.now+` AND position <= $3
					AND (leased_until IS NULL OR leased_until <= `+d.now+`)`+which+` ORDER BY due_at, position LIMIT $4)
			RETURNING number, id, position, lane, type, body, attempts, fence`, endpointID, -lease.Milliseconds(), upTo, limit); err != nil {
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

// Result is what became of a leased delivery.
type Result struct {
	Delivery Delivery      // as leased
	State    DeliveryState // Waiting: it is sent again after Wait
	Wait     time.Duration
	Released bool // it was not sent, or nobody knows: no attempt
	Took     time.Duration
	Status   int    // of HTTP; 0: there was no answer
	Error    string // "" if it was delivered
	Answer   string // the beginning of it
	// Hold is how long the endpoint wants to be left alone. Gone: it wants no more at all.
	Hold time.Duration
	Gone bool
}

// holdFor is how long an endpoint is left alone after so many failures in a row.
func holdFor(failures int64) time.Duration {
	if failures < BreakAfter {
		return 0
	}
	return min(5*time.Second<<min(failures-BreakAfter, 10), 5*time.Minute)
}

// RecordResults writes down what became of deliveries of one endpoint, in one transaction. A delivery whose lease somebody else has by now stays as that one
// leaves it; the attempt is in its log all the same. lost counts these.
func (s *Store) RecordResults(ctx context.Context, endpointID string, results []Result) (lost int, err error) {
	type line struct {
		Number  int64  `json:"n"`
		Fence   int64  `json:"f"`
		State   int    `json:"s"`
		Counted int    `json:"a"`
		Wait    int64  `json:"w"`
		Took    int64  `json:"ms"`
		Status  int    `json:"c"`
		Error   string `json:"e"`
		Answer  string `json:"b"`
	}
	lines := make([]line, len(results))
	for i, r := range results {
		lines[i] = line{r.Delivery.Number, r.Delivery.Fence, int(r.State), one01(!r.Released), r.Wait.Milliseconds(), r.Took.Milliseconds(), r.Status, storable(r.Error), storable(r.Answer)}
	}
	list, err := json.Marshal(lines)
	if err == nil {
		err = s.change(ctx, func(ctx context.Context, db conn) error {
			d := s.engine.dialect()
			// First, as a lease does: so neither waits for the other in a circle.
			e, err := s.endpoint(ctx, db, endpointID, d.forUpdate)
			if err != nil {
				return err
			}
			written := map[int64]bool{}
			if err := db.query(ctx, func(r row) error {
				var n int64
				err := r.Scan(&n)
				written[n] = true
				return err
			}, `UPDATE webhook_deliveries SET state = r.s, attempts = attempts + r.a, leased_until = NULL,
					due_at = CASE WHEN r.s = 1 THEN `+d.ago("(0 - r.w)")+` ELSE due_at END, ended_at = CASE WHEN r.s = 1 THEN ended_at ELSE `+d.now+` END
				FROM (`+d.results+`) AS r WHERE number = r.n AND fence = r.f AND state = 1 RETURNING number`, string(list)); err != nil {
				return err
			}
			if _, err := db.exec(ctx, `INSERT INTO webhook_attempts (delivery_id, number, at, ms, status, error, answer)
				SELECT d.id, r.f, `+d.now+`, r.ms, r.c, r.e, r.b FROM (`+d.results+`) AS r JOIN webhook_deliveries AS d ON d.number = r.n WHERE r.a = 1
				ON CONFLICT (delivery_id, number) DO NOTHING`, string(list)); err != nil {
				return err
			}
			// Those behind them in their lanes: due when these are, so that nobody looks at them in vain.
			if _, err := db.exec(ctx, `UPDATE webhook_deliveries SET due_at = head.due FROM (
					SELECT d.lane AS lane, d.position AS position, d.state AS state, CASE WHEN d.state = 1 THEN d.due_at ELSE `+d.now+` END AS due
					FROM (`+d.results+`) AS r JOIN webhook_deliveries AS d ON d.number = r.n WHERE d.lane > 0) AS head
				WHERE webhook_deliveries.endpoint_id = $2 AND webhook_deliveries.lane = head.lane AND webhook_deliveries.state = 1 AND webhook_deliveries.position > head.position
					AND (webhook_deliveries.due_at < head.due AND head.state = 1 OR webhook_deliveries.due_at > head.due AND head.state <> 1)`, string(list), endpointID); err != nil {
				return err
			}
			lost = len(results) - len(written)
			return s.judgeEndpoint(ctx, db, e, results, written)
		})
	}
	if err != nil {
		return 0, fmt.Errorf("order: record results of endpoint %s: %w", endpointID, err)
	}
	return lost, nil
}

// judgeEndpoint keeps what the results say of the endpoint itself.
func (s *Store) judgeEndpoint(ctx context.Context, db conn, e Endpoint, results []Result, written map[int64]bool) error {
	var ok, failed, givenUp int64
	var hold time.Duration
	gone, probe := false, false
	for _, r := range results {
		if r.Released || !written[r.Delivery.Number] {
			continue
		}
		hold, gone, probe = max(hold, r.Hold), gone || r.Gone, probe || r.Delivery.Probe
		switch {
		case r.State == DeliveryDelivered:
			ok++
			continue
		case r.State == DeliveryFailed && r.Delivery.Lane != LaneFree:
			givenUp++
		}
		failed++
	}
	d := s.engine.dialect()
	if ok > 0 {
		e.Failures = 0
		if _, err := db.exec(ctx, `UPDATE webhook_endpoints SET failures = 0, failing_since = NULL, hold_until = NULL
			WHERE id = $1 AND (failures > 0 OR failing_since IS NOT NULL OR hold_until IS NOT NULL)`, e.ID); err != nil {
			return err
		}
	} else if failed > 0 {
		before := e.Failures
		if before < BreakAfter {
			e.Failures = min(before+failed, BreakAfter)
		} else if probe { // not those that were under way when it began to be held: they say nothing new
			e.Failures++
		}
		set := "failures = $2"
		if e.Failures != before {
			set += ", hold_until = NULL" // of the probe
			hold = max(hold, holdFor(e.Failures))
		}
		if givenUp > 0 || e.Failures >= BreakAfter {
			set += ", failing_since = coalesce(failing_since, " + d.now + ")"
		}
		if _, err := db.exec(ctx, "UPDATE webhook_endpoints SET "+set+" WHERE id = $1", e.ID, e.Failures); err != nil {
			return err
		}
	}
	if hold > 0 {
		if _, err := db.exec(ctx, "UPDATE webhook_endpoints SET hold_until = "+d.ago("$2")+" WHERE id = $1 AND (hold_until IS NULL OR hold_until < "+d.ago("$2")+")", e.ID, -hold.Milliseconds()); err != nil {
			return err
		}
	}
	if gone && e.State != EndpointDisabled {
		if _, err := db.exec(ctx, "UPDATE webhook_endpoints SET state = 'disabled', reason = 'it answered 410 Gone' WHERE id = $1", e.ID); err != nil {
			return err
		}
		return record(ctx, db, "sluice", "webhook.disable", e.ID, "it answered 410 Gone")
	}
	return nil
}

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
