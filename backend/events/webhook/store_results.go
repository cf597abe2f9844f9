package webhook

import (
	"context"
	"slices"
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

// RecordResults stores the results of deliveries of one endpoint, in one transaction. A delivery that another sender
// has leased since, that was made due again, or that has its result, is left unchanged, but its attempt is recorded. So
// a call may be repeated. recorded are the numbers of the other deliveries. Error: ErrNoEndpoint.
func (s *Store) RecordResults(ctx context.Context, endpointID string, results []Result) (recorded []int64, err error) {
	list := newResultList(results)
	op := "webhook: record results of endpoint " + endpointID
	return store.Value(ctx, s.db.Update, op, func(ctx context.Context, c store.Conn) ([]int64, error) {
		// The endpoint is locked first, as by a lease, so that the transactions cannot deadlock.
		e, err := readEndpoint(ctx, c, endpointID, c.Dialect().ForUpdate)
		if err != nil {
			return nil, err
		}
		recorded, err := list.updateDeliveries(ctx, c)
		if err != nil {
			return nil, err
		}
		if err := list.insertAttempts(ctx, c); err != nil {
			return nil, err
		}
		if err := list.moveNext(ctx, c, endpointID, recorded); err != nil {
			return nil, err
		}
		return recorded, effectOf(results, recorded, e.Revision).updateEndpoint(ctx, c, e)
	})
}

// resultList is a list of results as arguments of statements. The numbers of the deliveries are passed a second time,
// as an array: PostgreSQL cannot estimate the length of the JSON list and would read the whole table.
type resultList struct {
	json    string // of records with the columns of resultColumns
	numbers []int64
}

const resultColumns = "delivery bigint, lease bigint, outcome smallint, counted integer, wait_ms bigint, " +
	"took_ms bigint, http_status integer, failure text, response_body text"

func newResultList(results []Result) resultList {
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
	records, numbers := make([]record, len(results)), make([]int64, len(results))
	for i, r := range results {
		numbers[i] = r.Delivery.Number
		records[i] = record{
			r.Delivery.Number, r.Delivery.Fence, int(r.State), asInt(!r.Released), r.Wait.Milliseconds(),
			r.Took.Milliseconds(), r.Status, store.Text(r.Error), store.Text(r.Answer),
		}
	}
	return resultList{store.JSON(records), numbers}
}

// table returns the table of the results, which are the argument $1.
func (resultList) table(d store.Dialect) string {
	return "(" + d.Records("$1", resultColumns) + ") AS result"
}

// updateDeliveries updates the deliveries that are still leased, and returns their numbers.
func (l resultList) updateDeliveries(ctx context.Context, c store.Conn) ([]int64, error) {
	d := c.Dialect()
	return store.Select(ctx, c, store.Column[int64], `UPDATE webhook_deliveries
		SET state = outcome, attempts = attempts + counted, leased_until = NULL,
			due_at = CASE WHEN outcome = 1 THEN `+d.Ago("(0 - wait_ms)")+` ELSE due_at END,
			ended_at = CASE WHEN outcome = 1 THEN ended_at ELSE `+d.Now+` END
		FROM `+l.table(d)+` WHERE number = delivery AND fence = lease AND leased_until IS NOT NULL AND state + 0 = 1
			AND number `+d.In("$2")+" RETURNING number", l.json, l.numbers)
}

// insertAttempts inserts the attempts of all results, also of deliveries that are no longer leased.
func (l resultList) insertAttempts(ctx context.Context, c store.Conn) error {
	d := c.Dialect()
	_, err := c.Exec(ctx, `INSERT INTO webhook_attempts (delivery_id, number, at, duration_ms, status, error, response)
		SELECT d.id, lease, `+d.Now+`, took_ms, http_status, failure, response_body
		FROM `+l.table(d)+` JOIN webhook_deliveries AS d ON d.number = delivery WHERE counted = 1 AND d.number `+d.In("$2")+`
		ON CONFLICT (delivery_id, number) DO NOTHING`, l.json, l.numbers)
	return err
}

// moveNext sets when the deliveries behind the recorded ones become due, in the sequences of orders. One behind a
// waiting delivery becomes due with it, so that no lease reads it earlier. One behind an ended delivery becomes due
// now, which is above the bound of leases.
func (l resultList) moveNext(ctx context.Context, c store.Conn, endpointID string, recorded []int64) error {
	d := c.Dialect()
	_, err := c.Exec(ctx, `UPDATE webhook_deliveries SET due_at = head.due FROM (
			SELECT d.sequence AS sequence, d.position AS position, d.state AS state,
				CASE WHEN d.state = 1 THEN d.due_at ELSE `+d.Now+` END AS due
			FROM `+l.table(d)+` JOIN webhook_deliveries AS d ON d.number = delivery
			WHERE d.sequence > 0 AND d.number `+d.In("$2")+`) AS head
		WHERE `+inOrderSequence("webhook_deliveries", "head.sequence", "$3")+`
			AND webhook_deliveries.position > head.position
			AND (webhook_deliveries.due_at < head.due OR head.state <> 1)`, l.json, recorded, endpointID)
	return err
}

// effect is what the results of one transaction mean for their endpoint.
type effect struct {
	delivered, failed, givenUp int64 // numbers of results; givenUp: failed permanently
	lastError                  string
	hold                       time.Duration // the longest that the endpoint requested
	probe                      time.Duration // how long the probe among the results holds the endpoint; 0: there is none
	gone                       bool          // for one of the results
}

// effectOf returns the effect of the results of deliveries that were still leased (recorded) and were sent at the
// current revision of the endpoint. An interrupted attempt is no failure of the endpoint.
func effectOf(results []Result, recorded []int64, revision int64) (f effect) {
	for _, r := range results {
		if r.Released || r.Delivery.Interrupted ||
			!slices.Contains(recorded, r.Delivery.Number) || r.Delivery.Revision != revision {
			continue
		}
		f.hold, f.gone, f.probe = max(f.hold, r.Hold), f.gone || r.Gone, max(f.probe, r.Delivery.Probe)
		if r.State == DeliveryDelivered {
			f.delivered++
			continue
		}
		f.failed++
		f.lastError = r.Error
		if r.State == DeliveryFailed && r.Delivery.Sequence != SequenceUnordered {
			f.givenUp++
		}
	}
	return f
}

// failures returns the failures in a row of an endpoint after the results. Those of requests that were in progress when
// a hold for failures began are not counted.
func (f effect) failures(e Endpoint) int64 {
	switch {
	case f.delivered > 0:
		return 0
	case e.Failures < breakAfter:
		return min(e.Failures+f.failed, breakAfter)
	case f.probe > 0:
		return e.Failures + 1
	}
	return e.Failures
}

// updateEndpoint updates an endpoint's last error, failures, hold and state.
func (f effect) updateEndpoint(ctx context.Context, c store.Conn, e Endpoint) error {
	if f.failed == 0 && (f.delivered == 0 || f.probe == 0 && e.Failures == 0 && e.FailingSince.IsZero()) {
		return nil
	}
	now, failures, failing := c.Dialect().Now, f.failures(e), "failing_since"
	switch {
	case f.delivered > 0:
		failing = "NULL"
	case f.givenUp > 0 || failures >= breakAfter:
		failing = "coalesce(failing_since, " + now + ")"
	}
	hold := f.hold
	if failures > e.Failures {
		hold = max(hold, holdFor(failures))
	}
	kept := max(hold, f.probe) // an existing hold that is longer stays: the endpoint has requested it
	if f.delivered > 0 {
		kept = max(kept, holdFor(e.Failures)) // a hold for failures ends
	}
	set, args := "failures = $2, failing_since = "+failing+", hold_until = CASE WHEN hold_until > "+c.Dialect().Ago("$4")+
		" THEN hold_until ELSE "+c.Dialect().Ago("$3")+" END",
		[]any{e.ID, failures, -hold.Milliseconds(), -kept.Milliseconds()}
	if f.failed > 0 {
		set, args = set+", last_error = $5, last_error_at = "+now, append(args, store.Text(f.lastError))
	}
	if _, err := c.Exec(ctx, "UPDATE webhook_endpoints SET "+set+" WHERE id = $1", args...); err != nil {
		return err
	}
	if !f.gone || e.State == EndpointDisabled {
		return nil
	}
	const reason = "it returned 410 Gone"
	const disable = "UPDATE webhook_endpoints SET state = 'disabled', reason = $2 WHERE id = $1"
	if _, err := c.Exec(ctx, disable, e.ID, reason); err != nil {
		return err
	}
	return store.AppendLog(store.WithActor(ctx, store.ActorSluice), c, "webhook.disable", e.ID, reason)
}
