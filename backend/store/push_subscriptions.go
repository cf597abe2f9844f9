package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/backend/sale"
)

// PushSubscription is a browser in which a buyer wants to be told of orders, as the Push API describes it.
type PushSubscription struct {
	ID        int64
	Buyer     string
	Endpoint  string // https URL of the browser's push service; a secret
	P256dh    string // the browser's key, base64url
	Auth      string // its authentication secret, base64url
	Lang      string // of the messages
	CreatedAt time.Time
}

const subscriptionColumns = "id, buyer, endpoint, p256dh, auth, lang, created_at"

func scanSubscription(r row) (PushSubscription, error) {
	var p PushSubscription
	var at instant
	err := r.Scan(&p.ID, &p.Buyer, &p.Endpoint, &p.P256dh, &p.Auth, &p.Lang, &at)
	p.CreatedAt = at.Time
	return p, err
}

// Subscribe keeps a subscription, with a new ID. One with the same endpoint is replaced, also another buyer's: a browser belongs to who uses it now. Of more
// than most, the buyer's oldest go.
func (s *Store) Subscribe(ctx context.Context, p PushSubscription, most int) (PushSubscription, error) {
	var kept PushSubscription
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		// Deleted first, and not updated: what is still to be sent to it was meant for whoever had it.
		if _, err := db.exec(ctx, "DELETE FROM push_subscriptions WHERE endpoint = $1 AND (buyer <> $2 OR p256dh <> $3 OR auth <> $4)", p.Endpoint, p.Buyer, p.P256dh, p.Auth); err != nil {
			return err
		}
		if err := db.query(ctx, func(r row) (err error) {
			kept, err = scanSubscription(r)
			return err
		}, `INSERT INTO push_subscriptions (buyer, endpoint, p256dh, auth, lang) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (endpoint) DO UPDATE SET buyer = excluded.buyer, p256dh = excluded.p256dh, auth = excluded.auth, lang = excluded.lang, failures = 0
			RETURNING `+subscriptionColumns, p.Buyer, p.Endpoint, p.P256dh, p.Auth, p.Lang); err != nil {
			return err
		}
		_, err := db.exec(ctx, `DELETE FROM push_subscriptions WHERE buyer = $1 AND id <> $3 AND id NOT IN
			(SELECT id FROM push_subscriptions WHERE buyer = $1 AND id <> $3 ORDER BY id DESC LIMIT $2)`, p.Buyer, most-1, kept.ID)
		return err
	})
	if err != nil {
		return PushSubscription{}, fmt.Errorf("order: subscribe: %w", err)
	}
	return kept, nil
}

// Subscriptions returns a buyer's subscriptions, the oldest first.
func (s *Store) Subscriptions(ctx context.Context, buyer string) ([]PushSubscription, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var all []PushSubscription
	err := s.engine.direct().query(ctx, func(r row) error {
		p, err := scanSubscription(r)
		all = append(all, p)
		return err
	}, "SELECT "+subscriptionColumns+" FROM push_subscriptions WHERE buyer = $1 ORDER BY id LIMIT 1000", buyer)
	if err != nil {
		return nil, fmt.Errorf("order: subscriptions: %w", err)
	}
	return all, nil
}

// Unsubscribe drops a subscription of the buyer. Error: sale.ErrNotFound.
func (s *Store) Unsubscribe(ctx context.Context, buyer string, id int64) error {
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		n, err := db.exec(ctx, "DELETE FROM push_subscriptions WHERE id = $1 AND buyer = $2", id, buyer)
		if err == nil && n == 0 {
			err = sale.ErrNotFound
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("order: unsubscribe: %w", err)
	}
	return nil
}

// DropSubscription forgets a subscription that its push service does not know any more. To do it again changes nothing.
func (s *Store) DropSubscription(ctx context.Context, id int64) error {
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		_, err := db.exec(ctx, "DELETE FROM push_subscriptions WHERE id = $1", id)
		return err
	})
	if err != nil {
		return fmt.Errorf("order: drop subscription: %w", err)
	}
	return nil
}

// CountPush counts what a push service made of a message for a subscription: refused adds to its failures in a row, and with most of them the subscription goes;
// else they are none again.
func (s *Store) CountPush(ctx context.Context, id int64, refused bool, most int) error {
	if !refused { // nearly always there is nothing to write
		err := one(ctx, s.engine.direct(), []any{new(int64)}, "SELECT id FROM push_subscriptions WHERE id = $1 AND failures > 0", id)
		if errors.Is(err, errNoRow) {
			return nil
		}
	}
	err := s.change(ctx, func(ctx context.Context, db conn) error {
		if !refused {
			_, err := db.exec(ctx, "UPDATE push_subscriptions SET failures = 0 WHERE id = $1", id)
			return err
		}
		if _, err := db.exec(ctx, "UPDATE push_subscriptions SET failures = failures + 1 WHERE id = $1", id); err != nil {
			return err
		}
		_, err := db.exec(ctx, "DELETE FROM push_subscriptions WHERE id = $1 AND failures >= $2", id, most)
		return err
	})
	if err != nil {
		return fmt.Errorf("order: count pushes: %w", err)
	}
	return nil
}
