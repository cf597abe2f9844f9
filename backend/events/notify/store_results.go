package notify

import (
	"cmp"
	"context"
	"slices"
	"time"

	"sluice/backend/store"
)

// Outcome is the outcome of an attempt, as the metrics name it.
type Outcome string

// The outcomes of attempts. After Failed and Released the message is due again; the others settle it.
const (
	Sent     Outcome = "sent"
	Failed   Outcome = "failed"
	Gone     Outcome = "gone"     // the subscription no longer exists
	Refused  Outcome = "refused"  // the push service or the outbound client rejected the message
	GivenUp  Outcome = "given_up" // all attempts failed
	Expired  Outcome = "expired"  // the event is older than its lifetime; not in the metrics
	Released Outcome = "released" // not sent, or interrupted by a stop; the attempt does not count
)

// Result is the result of an attempt to send a leased message.
type Result struct {
	Message Message
	Outcome Outcome
	Wait    time.Duration // until the next attempt, after Failed and Released

	slot *slot // nil: none
}

// messageKey identifies a message.
type messageKey struct {
	Event        string `json:"event"`
	Subscription int64  `json:"subscription"`
}

// maxRefusals is the number of refused or given-up messages in a row after which a subscription is deleted.
const maxRefusals = 10

// RecordResults stores results of messages that are still leased, and their effects on the subscriptions, in one
// transaction. A message that was leased again since, or that has its result, is left unchanged. So a call may be
// repeated.
func (s *Store) RecordResults(ctx context.Context, results []Result) error {
	type record struct {
		messageKey
		Lease    string `json:"lease"`
		Attempts int    `json:"made"`
		Settled  int    `json:"settled"`
		Wait     int64  `json:"wait_ms"`
	}
	records := make([]record, len(results))
	for i, r := range results {
		v := r.Message
		records[i] = record{messageKey{v.EventID, v.SubscriptionID}, v.lease, v.Attempts, 1, r.Wait.Milliseconds()}
		switch r.Outcome {
		case Released:
			records[i].Attempts--
			records[i].Settled = 0
		case Failed:
			records[i].Settled = 0
		}
	}
	return s.db.Update(ctx, "notify: record results", func(ctx context.Context, c store.Conn) error {
		d := c.Dialect()
		recorded, err := store.Select(ctx, c, func(row store.Scanner) (m messageKey, err error) {
			return m, row.Scan(&m.Event, &m.Subscription)
		}, "UPDATE notifications SET leased_by = NULL, attempts = made, due_at = "+d.Ago("(0 - wait_ms)")+
			", settled_at = CASE WHEN settled = 1 THEN "+d.Now+" END FROM ("+
			d.Records("$1", "event text, subscription bigint, lease text, made integer, settled integer, wait_ms bigint")+
			") AS result WHERE event_id = event AND subscription_id = subscription AND leased_by = lease "+
			"RETURNING event_id, subscription_id", store.JSON(records))
		if err != nil {
			return err
		}
		// in the order in which Subscribe locks subscriptions, so that the transactions cannot deadlock
		for _, r := range slices.SortedStableFunc(slices.Values(results), func(a, b Result) int {
			return cmp.Compare(a.Message.SubscriptionID, b.Message.SubscriptionID)
		}) {
			if v := r.Message; slices.Contains(recorded, messageKey{v.EventID, v.SubscriptionID}) {
				if err := updateSubscription(ctx, c, v.Subscription.ID, r.Outcome); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// updateSubscription deletes a subscription that is gone, counts its refused and given-up messages in a row, and
// deletes it after maxRefusals of them.
func updateSubscription(ctx context.Context, c store.Conn, id int64, o Outcome) error {
	const failures = "UPDATE web_push_subscriptions SET failures = "
	var err error
	switch o {
	case Sent: // also if there was no failure at the lease: since then, other messages may have been refused
		_, err = c.Exec(ctx, failures+"0 WHERE id = $1 AND failures > 0", id)
	case Gone:
		_, err = c.Exec(ctx, "DELETE FROM web_push_subscriptions WHERE id = $1", id)
	case Refused, GivenUp:
		if _, err = c.Exec(ctx, failures+"failures + 1 WHERE id = $1", id); err == nil {
			_, err = c.Exec(ctx, "DELETE FROM web_push_subscriptions WHERE id = $1 AND failures >= $2", id, maxRefusals)
		}
	}
	return err
}
