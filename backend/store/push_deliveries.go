package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// PushDelivery is one message that is to be sent over one channel.
type PushDelivery struct {
	EventID  string
	Channel  string
	Target   int64  // of the channel that goes to subscriptions: which; else 0
	Body     string // the event
	Attempts int    // this one included
	// Subscription is that of the target; its ID is 0 when it is gone.
	Subscription PushSubscription
}

// PushMessage is an event that the buyer is to be told of.
type PushMessage struct {
	EventID, Buyer, Body string
}

// QueuePush notes that messages are to be sent: once over each of the channels, and, if toSubscriptions is a channel's name, over that one to each subscription that their buyers
// have now. What is noted already, and be it sent, stays as it is.
func (s *Store) QueuePush(ctx context.Context, messages []PushMessage, channels []string, toSubscriptions string) error {
	type line struct {
		Event   string `json:"e"`
		Channel string `json:"c"`
		Target  int64  `json:"t"`
		Body    string `json:"b"`
	}
	var lines []line
	buyers := map[string][]int64{}
	if toSubscriptions != "" {
		var err error
		if buyers, err = s.subscribed(ctx, messages); err != nil {
			return fmt.Errorf("order: queue pushes: %w", err)
		}
	}
	for _, m := range messages {
		for _, c := range channels {
			lines = append(lines, line{m.EventID, c, 0, storable(m.Body)})
		}
		for _, id := range buyers[m.Buyer] {
			lines = append(lines, line{m.EventID, toSubscriptions, id, storable(m.Body)})
		}
	}
	if len(lines) == 0 {
		return nil
	}
	list, err := json.Marshal(lines)
	if err == nil {
		err = s.change(ctx, func(ctx context.Context, db conn) error {
			d := s.engine.dialect()
			_, err := db.exec(ctx, "INSERT INTO push_deliveries (event_id, channel, target, body, due_at) SELECT e, c, t, b, "+d.now+" FROM ("+
				fmt.Sprintf(d.pushes, "$1")+") AS line WHERE true ON CONFLICT (event_id, channel, target) DO NOTHING", string(list))
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("order: queue pushes: %w", err)
	}
	return nil
}

// subscribed finds the subscriptions of the messages' buyers.
func (s *Store) subscribed(ctx context.Context, messages []PushMessage) (map[string][]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	seen := map[string]bool{}
	var names []string
	for _, m := range messages {
		if !seen[m.Buyer] {
			seen[m.Buyer] = true
			names = append(names, storable(m.Buyer))
		}
	}
	found := map[string][]int64{}
	return found, s.engine.direct().query(ctx, func(r row) error {
		var buyer string
		var id int64
		err := r.Scan(&buyer, &id)
		found[buyer] = append(found[buyer], id)
		return err
	}, "SELECT buyer, id FROM push_subscriptions WHERE buyer "+s.engine.dialect().among("$1")+" ORDER BY buyer, id", names)
}

// LeasePush takes up to limit messages of a channel that are due, for as long as hold, under a name that no other process has. Those that are not
// settled by then are somebody else's.
func (s *Store) LeasePush(ctx context.Context, channel, lease string, hold time.Duration, limit int) ([]PushDelivery, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	d := s.engine.dialect()
	wanted := " FROM push_deliveries WHERE channel = $1 AND settled_at IS NULL AND due_at <= " + d.now + " ORDER BY due_at LIMIT $2"
	err := one(ctx, s.engine.direct(), []any{new(string)}, "SELECT event_id"+wanted, channel, 1) // while idle, nothing is locked
	if errors.Is(err, errNoRow) {
		return nil, nil
	}
	var all []PushDelivery
	if err == nil {
		err = s.engine.within(ctx, writing, func(db conn) error {
			all = nil
			if err := db.query(ctx, func(r row) error {
				v := PushDelivery{Channel: channel}
				err := r.Scan(&v.EventID, &v.Target, &v.Body, &v.Attempts)
				v.Attempts++
				all = append(all, v)
				return err
			}, "SELECT event_id, target, body, attempts"+wanted+d.skip, channel, limit); err != nil || len(all) == 0 {
				return err
			}
			keys, err := pushKeys(all)
			if err != nil {
				return err
			}
			_, err = db.exec(ctx, "UPDATE push_deliveries SET attempts = attempts + 1, lease = $2, due_at = "+d.ago("$3")+
				" WHERE channel = $4 AND (event_id, target) IN (SELECT e, t FROM ("+fmt.Sprintf(d.pushes, "$1")+") AS line)", keys, lease, -hold.Milliseconds(), channel)
			if err != nil {
				return err
			}
			return s.withSubscriptions(ctx, db, all)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("order: lease pushes: %w", err)
	}
	return all, nil
}

func pushKeys(all []PushDelivery) (string, error) {
	type key struct {
		Event  string `json:"e"`
		Target int64  `json:"t"`
	}
	keys := make([]key, len(all))
	for i, v := range all {
		keys[i] = key{v.EventID, v.Target}
	}
	b, err := json.Marshal(keys)
	return string(b), err
}

// withSubscriptions fills in the subscriptions of the deliveries' targets.
func (s *Store) withSubscriptions(ctx context.Context, db conn, all []PushDelivery) error {
	var ids []int64
	for _, v := range all {
		if v.Target != 0 {
			ids = append(ids, v.Target)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found := map[int64]PushSubscription{}
	err := db.query(ctx, func(r row) error {
		p, err := scanSubscription(r)
		found[p.ID] = p
		return err
	}, "SELECT "+subscriptionColumns+" FROM push_subscriptions WHERE id "+s.engine.dialect().among("$1"), ids)
	for i, v := range all {
		all[i].Subscription = found[v.Target]
	}
	return err
}

// SettlePush ends messages that this lease still holds: they are not sent again. With a letter they are dead, and wait for a person.
func (s *Store) SettlePush(ctx context.Context, lease string, all []PushDelivery, letter *Letter) error {
	if len(all) == 0 {
		return nil
	}
	keys, err := pushKeys(all)
	if err == nil {
		err = s.change(ctx, func(ctx context.Context, db conn) error {
			d := s.engine.dialect()
			n, err := db.exec(ctx, "UPDATE push_deliveries SET settled_at = "+d.now+", lease = NULL WHERE lease = $2 AND channel = $3 AND (event_id, target) IN (SELECT e, t FROM ("+
				fmt.Sprintf(d.pushes, "$1")+") AS line)", keys, lease, all[0].Channel)
			if err != nil || n == 0 || letter == nil {
				return err
			}
			return bury(ctx, db, *letter)
		})
	}
	if err != nil {
		return fmt.Errorf("order: settle pushes: %w", err)
	}
	return nil
}

// DelayPush gives a message that this lease still holds back, to be sent after a wait.
func (s *Store) DelayPush(ctx context.Context, lease string, v PushDelivery, wait time.Duration) error {
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		// The channel is written as no index has it, for the reason of ofOrder.
		_, err := db.exec(ctx, "UPDATE push_deliveries SET lease = NULL, due_at = "+s.engine.dialect().ago("$5")+
			" WHERE event_id = $1 AND channel || '' = $2 AND target = $3 AND lease = $4 AND settled_at IS NULL", v.EventID, v.Channel, v.Target, lease, -wait.Milliseconds())
		return err
	})
	if err != nil {
		return fmt.Errorf("order: delay a push: %w", err)
	}
	return nil
}

// PrunePush forgets up to limit messages that were settled longer ago than age, and tells how many.
func (s *Store) PrunePush(ctx context.Context, age time.Duration, limit int) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	d := s.engine.dialect()
	old := "SELECT event_id, channel, target FROM push_deliveries WHERE settled_at < " + d.ago("$1") + " ORDER BY settled_at LIMIT $2"
	err := one(ctx, s.engine.direct(), []any{new(string), new(string), new(int64)}, old, age.Milliseconds(), 1)
	if errors.Is(err, errNoRow) {
		return 0, nil
	}
	var n int64
	if err == nil {
		err = s.engine.within(ctx, writing, func(db conn) (err error) {
			n, err = db.exec(ctx, "DELETE FROM push_deliveries WHERE (event_id, channel, target) IN ("+old+d.skip+")", age.Milliseconds(), limit)
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("order: prune pushes: %w", err)
	}
	return n, nil
}

// WaitingPushes tells how many messages each channel has still to send; a channel without any is missing.
func (s *Store) WaitingPushes(ctx context.Context) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	counts := map[string]int64{}
	err := s.engine.direct().query(ctx, func(r row) error {
		var channel string
		var n int64
		err := r.Scan(&channel, &n)
		counts[channel] = n
		return err
	}, "SELECT channel, count(*) FROM push_deliveries WHERE settled_at IS NULL GROUP BY channel")
	if err != nil {
		return nil, fmt.Errorf("order: count pushes: %w", err)
	}
	return counts, nil
}
