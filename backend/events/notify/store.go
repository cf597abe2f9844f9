package notify

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/internal/metric"
)

// Store keeps queued messages and the subscriptions of browsers. It is safe for concurrent use.
type Store struct {
	db     *store.DB
	leased events.ScanBound[int64] // milliseconds of due_at, less events.LateCommit
}

// NewStore returns the Store in db.
func NewStore(db *store.DB) *Store { return &Store{db: db} }

// Message is a leased message: one event for one subscription.
type Message struct {
	EventID        string
	SubscriptionID int64
	Body           string       // the encoded event
	Attempts       int          // including the current one
	LeasedAt       time.Time    // by the database's clock, as the time of the event
	Subscription   Subscription // its ID is 0 if the subscription was deleted

	lease string // unique
}

// QueuedEvent is an event to be queued for its buyer, and its record in the statement. Its texts are results of
// store.Text.
type QueuedEvent struct {
	EventID string `json:"event_id"`
	Buyer   string `json:"of_buyer"`
	Body    string `json:"body"`
}

// Enqueue queues each event once for each current subscription of its buyer. Messages that are stored already, sent
// or not, are left unchanged.
func (s *Store) Enqueue(ctx context.Context, batch []QueuedEvent) error {
	buyers := make([]string, len(batch))
	for i, e := range batch {
		buyers[i] = e.Buyer
	}
	_, err := s.db.UpdateIf(ctx, "notify: enqueue", func(ctx context.Context, c store.Conn) (bool, error) {
		subscribed := "SELECT id FROM web_push_subscriptions WHERE buyer " + c.Dialect().In("$1") + " LIMIT 1"
		return store.Exists(ctx, c, subscribed, buyers)
	}, func(ctx context.Context, c store.Conn) error {
		d := c.Dialect()
		_, err := c.Exec(ctx, `INSERT INTO notifications (event_id, subscription_id, body, due_at)
			SELECT event_id, id, body, `+d.Now+`
			FROM (`+d.Records("$1", "event_id text, of_buyer text, body text")+`) AS queued
				JOIN web_push_subscriptions ON buyer = of_buyer
			WHERE true ORDER BY event_id, id ON CONFLICT (event_id, subscription_id) DO NOTHING`, store.JSON(batch))
		return err
	})
	return err
}

// Lease leases up to limit due messages, in no particular order. A message whose lease has expired is due again. A
// message that became visible more than events.LateCommit after its due time may wait for a scan from the beginning;
// see events.ScanBound.
func (s *Store) Lease(ctx context.Context, lease time.Duration, limit int) (all []Message, err error) {
	from := s.leased.Next(time.Now())
	// The lower bound compares a pair of columns. With two bounds of due_at alone, PostgreSQL without statistics would
	// expect few rows, and would sort the whole backlog.
	due := func(c store.Conn) string {
		return " FROM notifications WHERE settled_at IS NULL AND due_at <= " + c.Dialect().Now +
			" AND (due_at, event_id) > (" + c.Dialect().Millis("$2") + ", '') ORDER BY due_at LIMIT $1"
	}
	var oldest time.Time
	_, err = s.db.UpdateIf(ctx, "notify: lease", func(ctx context.Context, c store.Conn) (bool, error) {
		err := store.Get(ctx, c, []any{store.Time(&oldest)}, "SELECT due_at"+due(c), 1, from)
		if errors.Is(err, sale.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}, func(ctx context.Context, c store.Conn) error {
		d, id := c.Dialect(), rand.Text()
		all, err = store.Select(ctx, c, func(row store.Scanner) (Message, error) {
			v := Message{lease: id}
			err := row.Scan(&v.EventID, &v.SubscriptionID, &v.Body, &v.Attempts, store.Time(&v.LeasedAt))
			return v, err
		}, "WITH due AS MATERIALIZED (SELECT event_id, subscription_id"+due(c)+d.SkipLocked+`)
			UPDATE notifications SET attempts = attempts + 1, leased_by = $3, due_at = `+d.Ago("$4")+`
			WHERE (event_id, subscription_id) IN (SELECT event_id, subscription_id FROM due)
			RETURNING event_id, subscription_id, body, attempts, `+d.Now, limit, from, id, -lease.Milliseconds())
		if err != nil || len(all) == 0 {
			return err
		}
		return readSubscriptions(ctx, c, all)
	})
	if err != nil {
		return nil, err
	}
	if len(all) > 0 {
		s.leased.Advance(oldest.Add(-events.LateCommit).UnixMilli())
	}
	return all, nil
}

// readSubscriptions sets the subscriptions of the messages.
func readSubscriptions(ctx context.Context, c store.Conn, all []Message) error {
	ids := make([]int64, len(all))
	for i, v := range all {
		ids[i] = v.SubscriptionID
	}
	found, err := store.Select(ctx, c, scanSubscription,
		"SELECT "+subscriptionColumns+" FROM web_push_subscriptions WHERE id "+c.Dialect().In("$1"), ids)
	byID := map[int64]Subscription{}
	for _, p := range found {
		byID[p.ID] = p
	}
	for i, v := range all {
		all[i].Subscription = byID[v.SubscriptionID]
	}
	return err
}

// Prune deletes up to limit messages that were settled longer ago than age, and returns how many.
func (s *Store) Prune(ctx context.Context, age time.Duration, limit int) (int64, error) {
	d := s.db.Dialect()
	old := "SELECT event_id, subscription_id FROM notifications WHERE settled_at < " + d.Ago("$1") +
		" ORDER BY settled_at LIMIT $2"
	return store.UpdateRowsIf(ctx, s.db, "notify: prune", old,
		"DELETE FROM notifications WHERE (event_id, subscription_id) IN ("+old+d.SkipLocked+")", age.Milliseconds(), limit)
}

// CountWaiting returns the number of messages that have not been sent yet.
func (s *Store) CountWaiting(ctx context.Context) (int64, error) {
	const waiting = "SELECT count(*) FROM notifications WHERE settled_at IS NULL"
	return store.ViewRow(ctx, s.db, "notify: count waiting", store.Column[int64], waiting)
}

// NewCollector returns the gauge sluice_web_push_waiting. While the database does not answer, it exports only
// sluice_web_push_up, which is 0.
func NewCollector(db *Store) prometheus.Collector {
	return metric.Collector{Prefix: "sluice_web_push_", Read: func(ctx context.Context, set metric.SetGauge) error {
		n, err := db.CountWaiting(ctx)
		if err == nil {
			set("waiting", "Web Push messages that have not been sent yet.", float64(n))
		}
		return err
	}}
}
