package webhook

import (
	"context"
	"time"

	"sluice/backend/store"
)

// breakAfter is the number of failures in a row after which an endpoint is probed: it gets one delivery at a time, with
// pauses in between.
const breakAfter = 20

// Result is the outcome of a leased delivery.
type Result struct {
	Delivery Delivery      // as leased
	State    DeliveryState // DeliveryWaiting: it is sent again after Wait
	Wait     time.Duration
	Released bool // it was not sent, or the outcome is unknown: not counted as an attempt
	Took     time.Duration
	Status   int    // of HTTP; 0: there was no response
	Error    string // "" if it was delivered
	Answer   string // the beginning of the response
	// Hold is the delay that the endpoint requested (Retry-After). Gone: it returned 410.
	Hold time.Duration
	Gone bool
}

// holdFor returns how long an endpoint gets no requests after a number of failures in a row.
func holdFor(failures int64) time.Duration {
	if failures < breakAfter {
		return 0
	}
	return min(5*time.Second<<min(failures-breakAfter, 10), 5*time.Minute)
}

const resultRecord = "delivery bigint, lease bigint, outcome smallint, counted integer, wait_ms bigint, " +
	"took_ms bigint, http_status integer, failure text, response_body text"

// RecordResults stores the results of deliveries of one endpoint, in one transaction. A delivery that another sender
// has leased since, that was made due again, or that has its result, is left unchanged, but its attempt is recorded;
// lost counts these deliveries. So a call may be repeated. Error: sale.ErrNotFound.
func (s *Store) RecordResults(ctx context.Context, endpointID string, results []Result) (lost int, err error) {
	type record struct {
		Number   int64  `json:"delivery"`
		Fence    int64  `json:"lease"`
		State    int    `json:"outcome"`
		Counted  int    `json:"counted"`
		Wait     int64  `json:"wait_ms"`
		Took     int64  `json:"took_ms"`
		Status   int    `json:"http_status"`
		Error    string `json:"failure"`
		Response string `json:"response_body"`
	}
	records, leased := make([]record, len(results)), make([]int64, len(results))
	for i, r := range results {
		leased[i] = r.Delivery.Number
		records[i] = record{
			r.Delivery.Number, r.Delivery.Fence, int(r.State), asInt(!r.Released), r.Wait.Milliseconds(),
			r.Took.Milliseconds(), r.Status, store.Text(r.Error), store.Text(r.Answer),
		}
	}
	op := "webhook: record results of endpoint " + endpointID
	return store.Value(ctx, s.db.Update, op, func(ctx context.Context, c store.Conn) (int, error) {
		d, list := c.Dialect(), store.JSON(records)
		result := "(" + d.Records("$1", resultRecord) + ") AS result"
		// The numbers are passed a second time, as an array: PostgreSQL cannot estimate the length of the JSON list and
		// would read the whole table.
		inList := "number " + d.In("$2")
		// The endpoint is locked first, as by a lease, so that the transactions cannot deadlock.
		e, err := readEndpoint(ctx, c, endpointID, d.ForUpdate)
		if err != nil {
			return 0, err
		}
		recorded, err := store.Select(ctx, c, store.Column[int64], `UPDATE webhook_deliveries
			SET state = outcome, attempts = attempts + counted, leased_until = NULL,
				due_at = CASE WHEN outcome = 1 THEN `+d.Ago("(0 - wait_ms)")+` ELSE due_at END,
				ended_at = CASE WHEN outcome = 1 THEN ended_at ELSE `+d.Now+` END
			FROM `+result+` WHERE number = delivery AND fence = lease AND leased_until IS NOT NULL AND state + 0 = 1 AND `+inList+`
			RETURNING number`, list, leased)
		if err != nil {
			return 0, err
		}
		if _, err := c.Exec(ctx, `INSERT INTO webhook_attempts
			(delivery_id, number, at, duration_ms, status, error, response)
			SELECT d.id, lease, `+d.Now+`, took_ms, http_status, failure, response_body
			FROM `+result+` JOIN webhook_deliveries AS d ON d.number = delivery WHERE counted = 1 AND d.`+inList+`
			ON CONFLICT (delivery_id, number) DO NOTHING`, list, leased); err != nil {
			return 0, err
		}
		// A delivery behind a waiting one in its sequence becomes due with it, so that no lease reads it earlier. One
		// behind an ended delivery becomes due now, which is above the keys that were leased (see leaseBound).
		if _, err := c.Exec(ctx, `UPDATE webhook_deliveries SET due_at = head.due FROM (
				SELECT d.sequence AS sequence, d.position AS position, d.state AS state,
					CASE WHEN d.state = 1 THEN d.due_at ELSE `+d.Now+` END AS due
				FROM `+result+` JOIN webhook_deliveries AS d ON d.number = delivery WHERE d.sequence > 0 AND d.`+inList+`) AS head
			WHERE `+inOrderSequence("webhook_deliveries", "head.sequence", "$3")+`
				AND webhook_deliveries.position > head.position
				AND (webhook_deliveries.due_at < head.due OR head.state <> 1)`, list, leased, endpointID); err != nil {
			return 0, err
		}
		own := map[int64]bool{}
		for _, number := range recorded {
			own[number] = true
		}
		return len(results) - len(recorded), updateEndpoint(ctx, c, e, results, own)
	})
}

// updateEndpoint updates an endpoint's failures, hold and state from the results of deliveries that were still leased
// (own) and were sent at its current revision.
func updateEndpoint(ctx context.Context, c store.Conn, e Endpoint, results []Result, own map[int64]bool) error {
	var delivered, failed, givenUp int64
	var hold time.Duration
	gone, probe := false, false
	for _, r := range results {
		if r.Released || !own[r.Delivery.Number] || r.Delivery.Revision != e.Revision {
			continue
		}
		hold, gone, probe = max(hold, r.Hold), gone || r.Gone, probe || r.Delivery.Probe
		switch {
		case r.State == DeliveryDelivered:
			delivered++
			continue
		case r.State == DeliveryFailed && r.Delivery.Sequence != SequenceUnordered:
			givenUp++
		}
		failed++
	}
	if delivered > 0 {
		if err := resetFailures(ctx, c, e.ID); err != nil {
			return err
		}
	} else if failed > 0 {
		before := e.Failures
		if before < breakAfter {
			e.Failures = min(before+failed, breakAfter)
		} else if probe { // failures of requests that were in progress when the hold began are not counted
			e.Failures++
		}
		set := "failures = $2"
		if e.Failures != before {
			set += ", hold_until = NULL" // of the probe
			hold = max(hold, holdFor(e.Failures))
		}
		if givenUp > 0 || e.Failures >= breakAfter {
			set += ", failing_since = coalesce(failing_since, " + c.Dialect().Now + ")"
		}
		if _, err := c.Exec(ctx, "UPDATE webhook_endpoints SET "+set+" WHERE id = $1", e.ID, e.Failures); err != nil {
			return err
		}
	}
	if hold > 0 {
		longer := " AND (hold_until IS NULL OR hold_until < " + c.Dialect().Ago("$2") + ")"
		if err := holdEndpoint(ctx, c, e.ID, hold, longer); err != nil {
			return err
		}
	}
	if !gone || e.State == EndpointDisabled {
		return nil
	}
	const reason = "it returned 410 Gone"
	const disable = "UPDATE webhook_endpoints SET state = 'disabled', reason = $2 WHERE id = $1"
	if _, err := c.Exec(ctx, disable, e.ID, reason); err != nil {
		return err
	}
	return store.AppendLog(store.WithActor(ctx, store.ActorSluice), c, "webhook.disable", e.ID, reason)
}
