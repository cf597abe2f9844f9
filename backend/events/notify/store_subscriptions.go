package notify

import (
	"context"
	"fmt"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
)

// Subscription is a browser that receives a buyer's notifications, as the Push API describes it.
type Subscription struct {
	ID        int64
	Buyer     string
	Endpoint  string // https URL of the browser's push service; a secret
	P256dh    string // the browser's public key, base64url
	Auth      string // its authentication secret, base64url
	Lang      string // of the notifications
	CreatedAt time.Time
}

const subscriptionColumns = "id, buyer, endpoint, p256dh, auth, lang, created_at"

func scanSubscription(row store.Scanner) (p Subscription, err error) {
	err = row.Scan(&p.ID, &p.Buyer, &p.Endpoint, &p.P256dh, &p.Auth, &p.Lang, store.Time(&p.CreatedAt))
	return p, err
}

// Subscribe stores a subscription and returns it with its ID. It replaces a subscription with the same endpoint, also
// of another buyer, because a browser belongs to its current user. If the buyer has more than limit subscriptions then,
// the oldest are deleted.
func (s *Store) Subscribe(ctx context.Context, p Subscription, limit int) (Subscription, error) {
	const op = "notify: subscribe"
	return store.Value(ctx, s.db.Update, op, func(ctx context.Context, c store.Conn) (kept Subscription, err error) {
		// Overlapping transactions of one buyer would not see each other's subscriptions, and keep too many.
		if _, err := c.Exec(ctx, c.Dialect().LockText, "push subscriptions of "+p.Buyer); err != nil {
			return kept, err
		}
		// The rows are locked in the order of their ids, as by RecordResults.
		if _, err := c.Exec(ctx, "SELECT id FROM web_push_subscriptions WHERE buyer = $1 OR endpoint = $2 ORDER BY id"+
			c.Dialect().ForUpdate, p.Buyer, p.Endpoint); err != nil {
			return kept, err
		}
		// A subscription that changes is deleted, not updated: queued notifications were meant for its previous user.
		if _, err := c.Exec(ctx, `DELETE FROM web_push_subscriptions
			WHERE endpoint = $1 AND (buyer <> $2 OR p256dh <> $3 OR auth <> $4)`,
			p.Endpoint, p.Buyer, p.P256dh, p.Auth); err != nil {
			return kept, err
		}
		kept, err = store.GetRow(ctx, c, scanSubscription, `INSERT INTO web_push_subscriptions
				(buyer, endpoint, p256dh, auth, lang)
			VALUES ($1, $2, $3, $4, $5) ON CONFLICT (endpoint) DO UPDATE SET buyer = excluded.buyer, p256dh = excluded.p256dh,
				auth = excluded.auth, lang = excluded.lang, failures = 0
			RETURNING `+subscriptionColumns, p.Buyer, p.Endpoint, p.P256dh, p.Auth, p.Lang)
		if err != nil {
			return kept, err
		}
		_, err = c.Exec(ctx, `DELETE FROM web_push_subscriptions WHERE buyer = $1 AND id <> $3 AND id NOT IN
			(SELECT id FROM web_push_subscriptions WHERE buyer = $1 AND id <> $3 ORDER BY id DESC LIMIT $2)`,
			p.Buyer, limit-1, kept.ID)
		return kept, err
	})
}

// Subscriptions returns a buyer's subscriptions, oldest first.
func (s *Store) Subscriptions(ctx context.Context, buyer string) ([]Subscription, error) {
	return store.ViewRows(ctx, s.db, "notify: subscriptions", scanSubscription,
		"SELECT "+subscriptionColumns+" FROM web_push_subscriptions WHERE buyer = $1 ORDER BY id LIMIT 1000", buyer)
}

// Unsubscribe deletes a subscription of a buyer. Error: sale.ErrNotFound.
func (s *Store) Unsubscribe(ctx context.Context, buyer string, id int64) error {
	const remove = "DELETE FROM web_push_subscriptions WHERE id = $1 AND buyer = $2"
	n, err := store.UpdateRows(ctx, s.db, "notify: unsubscribe", remove, id, buyer)
	if err == nil && n == 0 {
		err = fmt.Errorf("notify: unsubscribe: %w", sale.ErrNotFound)
	}
	return err
}
