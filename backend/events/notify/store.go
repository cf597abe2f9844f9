package notify

import (
	"context"
	"time"

	"sluice/backend/events"
	"sluice/backend/store"
)

// Store keeps queued notifications and the subscriptions of browsers. It is safe for concurrent use.
type Store struct{ db *store.DB }

// NewStore returns the Store in db.
func NewStore(db *store.DB) *Store { return &Store{db} }

// Delivery is a notification to be sent over one channel.
type Delivery struct {
	EventID      string
	Channel      string
	Target       int64        // the subscription's id, in the channel of subscriptions; else 0
	Body         string       // the event
	Attempts     int          // including the current one
	Subscription Subscription // of the target; its ID is 0 if it was deleted
}

// QueuedEvent is an event to be queued for its buyer.
type QueuedEvent struct{ EventID, Buyer, Body string }

// Enqueue queues notifications: for each event one per channel and, if webPush is the name of a channel, one for each
// current subscription of its buyer over that channel. Notifications that are stored already, sent or not, are left
// unchanged.
func (s *Store) Enqueue(ctx context.Context, batch []QueuedEvent, channels []string, webPush string) error {
	type record struct {
		Event   string `json:"event_id"`
		Channel string `json:"channel"`
		Target  int64  `json:"target"`
		Body    string `json:"body"`
	}
	const op = "notify: enqueue"
	var records []record
	targets := map[string][]int64{}
	if webPush != "" {
		var err error
		if targets, err = s.subscriptionsOf(ctx, op, batch); err != nil {
			return err
		}
	}
	for _, e := range batch {
		for _, channel := range channels {
			records = append(records, record{e.EventID, channel, 0, store.Text(e.Body)})
		}
		for _, id := range targets[e.Buyer] {
			records = append(records, record{e.EventID, webPush, id, store.Text(e.Body)})
		}
	}
	if len(records) == 0 {
		return nil
	}
	return s.db.Update(ctx, op, func(ctx context.Context, c store.Conn) error {
		d := c.Dialect()
		_, err := c.Exec(ctx,
			"INSERT INTO notifications (event_id, channel, target, body, due_at) SELECT event_id, channel, target, body, "+
				d.Now+" FROM ("+d.Records("$1", "event_id text, channel text, target bigint, body text")+`) AS queued
			WHERE true ORDER BY event_id, channel, target ON CONFLICT (event_id, channel, target) DO NOTHING`,
			store.JSON(records))
		return err
	})
}

// subscriptionsOf returns the ids of the subscriptions of the events' buyers.
func (s *Store) subscriptionsOf(ctx context.Context, op string, batch []QueuedEvent) (map[string][]int64, error) {
	seen := map[string]bool{}
	var buyers []string
	for _, e := range batch {
		if !seen[e.Buyer] {
			seen[e.Buyer] = true
			buyers = append(buyers, store.Text(e.Buyer))
		}
	}
	found := map[string][]int64{}
	return found, s.db.View(ctx, op, func(ctx context.Context, c store.Conn) error {
		return c.Query(ctx, func(row store.Scanner) error {
			var buyer string
			var id int64
			err := row.Scan(&buyer, &id)
			found[buyer] = append(found[buyer], id)
			return err
		}, "SELECT buyer, id FROM web_push_subscriptions WHERE buyer "+c.Dialect().In("$1")+" ORDER BY buyer, id", buyers)
	})
}

// Lease leases up to limit due notifications of a channel under the name of a process. A lease that expires makes a
// notification available again.
func (s *Store) Lease(
	ctx context.Context, channel, process string, lease time.Duration, limit int,
) (all []Delivery, err error) {
	due := func(c store.Conn) string {
		return " FROM notifications WHERE channel = $1 AND settled_at IS NULL AND due_at <= " + c.Dialect().Now +
			" ORDER BY due_at LIMIT $2"
	}
	_, err = s.db.UpdateIf(ctx, "notify: lease", func(ctx context.Context, c store.Conn) (bool, error) {
		return store.Exists(ctx, c, "SELECT event_id"+due(c), channel, 1)
	}, func(ctx context.Context, c store.Conn) error {
		d := c.Dialect()
		all, err = store.Select(ctx, c, func(row store.Scanner) (Delivery, error) {
			v := Delivery{Channel: channel}
			err := row.Scan(&v.EventID, &v.Target, &v.Body, &v.Attempts)
			v.Attempts++
			return v, err
		}, "SELECT event_id, target, body, attempts"+due(c)+d.SkipLocked, channel, limit)
		if err != nil || len(all) == 0 {
			return err
		}
		if _, err := c.Exec(ctx, "UPDATE notifications SET attempts = attempts + 1, leased_by = $2, due_at = "+d.Ago("$3")+
			" WHERE channel = $4 AND "+inKeys(d), keys(all), process, -lease.Milliseconds(), channel); err != nil {
			return err
		}
		return readSubscriptions(ctx, c, all)
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// inKeys is the condition for the notifications in keys, which is the argument $1.
func inKeys(d store.Dialect) string {
	return "(event_id, target) IN (SELECT event_id, target FROM (" +
		d.Records("$1", "event_id text, target bigint") + ") AS leased)"
}

func keys(all []Delivery) string {
	type key struct {
		Event  string `json:"event_id"`
		Target int64  `json:"target"`
	}
	list := make([]key, len(all))
	for i, v := range all {
		list[i] = key{v.EventID, v.Target}
	}
	return store.JSON(list)
}

// readSubscriptions sets the subscriptions of the deliveries' targets.
func readSubscriptions(ctx context.Context, c store.Conn, all []Delivery) error {
	var ids []int64
	for _, v := range all {
		if v.Target != 0 {
			ids = append(ids, v.Target)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := store.Select(ctx, c, scanSubscription,
		"SELECT "+subscriptionColumns+" FROM web_push_subscriptions WHERE id "+c.Dialect().In("$1"), ids)
	byID := map[int64]Subscription{}
	for _, p := range found {
		byID[p.ID] = p
	}
	for i, v := range all {
		all[i].Subscription = byID[v.Target]
	}
	return err
}

// Settle ends those notifications that process still leases: they are not sent again. If a letter is given, it is
// stored as their dead letter.
func (s *Store) Settle(ctx context.Context, process string, all []Delivery, letter *events.DeadLetter) error {
	if len(all) == 0 {
		return nil
	}
	return s.db.Update(ctx, "notify: settle", func(ctx context.Context, c store.Conn) error {
		d := c.Dialect()
		n, err := c.Exec(ctx, "UPDATE notifications SET settled_at = "+d.Now+
			", leased_by = NULL WHERE leased_by = $2 AND channel = $3 AND "+inKeys(d), keys(all), process, all[0].Channel)
		if err != nil || n == 0 || letter == nil {
			return err
		}
		return events.AddDeadLetter(ctx, c, *letter)
	})
}

// Delay releases a notification that process still leases. It is due again after a wait.
func (s *Store) Delay(ctx context.Context, process string, v Delivery, wait time.Duration) error {
	return s.db.Update(ctx, "notify: delay", func(ctx context.Context, c store.Conn) error {
		// The expression channel || '' matches no index, so that PostgreSQL uses the primary key.
		_, err := c.Exec(ctx, "UPDATE notifications SET leased_by = NULL, due_at = "+c.Dialect().Ago("$5")+
			" WHERE event_id = $1 AND channel || '' = $2 AND target = $3 AND leased_by = $4 AND settled_at IS NULL",
			v.EventID, v.Channel, v.Target, process, -wait.Milliseconds())
		return err
	})
}

// Prune deletes up to limit notifications that were settled longer ago than age, and returns how many.
func (s *Store) Prune(ctx context.Context, age time.Duration, limit int) (n int64, err error) {
	old := func(c store.Conn) string {
		return "SELECT event_id, channel, target FROM notifications WHERE settled_at < " + c.Dialect().Ago("$1") +
			" ORDER BY settled_at LIMIT $2"
	}
	_, err = s.db.UpdateIf(ctx, "notify: prune", func(ctx context.Context, c store.Conn) (bool, error) {
		return store.Exists(ctx, c, old(c), age.Milliseconds(), 1)
	}, func(ctx context.Context, c store.Conn) error {
		n, err = c.Exec(ctx,
			"DELETE FROM notifications WHERE (event_id, channel, target) IN ("+old(c)+c.Dialect().SkipLocked+")",
			age.Milliseconds(), limit)
		return err
	})
	return n, err
}

// CountWaiting returns the number of notifications to be sent by channel, without channels that have none.
func (s *Store) CountWaiting(ctx context.Context) (counts map[string]int64, err error) {
	err = s.db.View(ctx, "notify: count waiting", func(ctx context.Context, c store.Conn) error {
		counts, err = store.SelectCounts(ctx, c,
			"SELECT channel, count(*) FROM notifications WHERE settled_at IS NULL GROUP BY channel")
		return err
	})
	return counts, err
}
