package store

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// BreakAfter is after how many failures in a row an endpoint is tried with one delivery at a time, and pauses between them.
const BreakAfter = 20

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
	lines, leased := make([]line, len(results)), make([]int64, len(results))
	for i, r := range results {
		leased[i] = r.Delivery.Number
		lines[i] = line{r.Delivery.Number, r.Delivery.Fence, int(r.State), one01(!r.Released), r.Wait.Milliseconds(), r.Took.Milliseconds(), r.Status, storable(r.Error), storable(r.Answer)}
	}
	list, err := json.Marshal(lines)
	if err == nil {
		err = s.change(ctx, func(ctx context.Context, db conn) error {
			d := s.engine.dialect()
			// The deliveries are named twice, in the list and here: how long the list is PostgreSQL does not know, and would rather read the whole table.
			which := "number " + d.among("$2")
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
				FROM (`+d.results+`) AS r WHERE number = r.n AND fence = r.f AND state = 1 AND `+which+` RETURNING number`, string(list), leased); err != nil {
				return err
			}
			if _, err := db.exec(ctx, `INSERT INTO webhook_attempts (delivery_id, number, at, ms, status, error, answer)
				SELECT d.id, r.f, `+d.now+`, r.ms, r.c, r.e, r.b FROM (`+d.results+`) AS r JOIN webhook_deliveries AS d ON d.number = r.n WHERE r.a = 1 AND d.`+which+`
				ON CONFLICT (delivery_id, number) DO NOTHING`, string(list), leased); err != nil {
				return err
			}
			// Those behind them in their sequences: due when these are, so that nobody looks at them in vain.
			if _, err := db.exec(ctx, `UPDATE webhook_deliveries SET due_at = head.due FROM (
					SELECT d.sequence AS sequence, d.position AS position, d.state AS state, CASE WHEN d.state = 1 THEN d.due_at ELSE `+d.now+` END AS due
					FROM (`+d.results+`) AS r JOIN webhook_deliveries AS d ON d.number = r.n WHERE d.sequence > 0 AND d.`+which+`) AS head
				WHERE `+ofOrder("webhook_deliveries", "head.sequence", "$3")+` AND webhook_deliveries.position > head.position
					AND (webhook_deliveries.due_at < head.due AND head.state = 1 OR webhook_deliveries.due_at > head.due AND head.state <> 1)`, string(list), leased, endpointID); err != nil {
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
		case r.State == DeliveryFailed && r.Delivery.Sequence != SequenceFree:
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
