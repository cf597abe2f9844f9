package api

import (
	"context"
	"time"

	"sluice/backend/admission"
	"sluice/backend/api/userlimit"
	"sluice/backend/events/notify"
	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// The services behind the routes. Their errors are those of package sale. They must be safe for concurrent use.

// Admitter decides purchases (admission.Admitter).
type Admitter interface {
	Admit(ctx context.Context, r admission.Request) (admission.Decision, error)
}

// Stock reads the sales that Redis holds (admission.Stock).
type Stock interface {
	View(ctx context.Context, saleID string) (admission.View, error)
	List(ctx context.Context) ([]admission.View, error)
	// Spread returns the number of segments of a sale; 0: it lives in one shard. It returns admission.ErrNotLoaded for a
	// sale that Redis does not hold.
	Spread(ctx context.Context, saleID string) (int, error)
	Accepted(ctx context.Context, saleID string) (int64, error)
	BypassList(ctx context.Context, saleID string, most int) (admission.BypassList, error)
}

// Finder reads orders that may not be rows yet (admission.Finder).
type Finder interface {
	FindOrder(ctx context.Context, buyer string, id sale.OrderID) (sale.Order, error)
	// OrdersHeld returns the orders that the buyer holds in a sale, rows among them, as queued.
	OrdersHeld(ctx context.Context, buyer, saleID string) ([]sale.Order, error)
	// Remember stores the sale of an order, so that FindOrder reads one sale instead of all.
	Remember(id sale.OrderID, saleID string)
}

// Rows reads the rows of orders (store.Store, store.Replica).
type Rows interface {
	Order(ctx context.Context, id sale.OrderID) (sale.Order, error)
	// OrdersByID omits ids that are not rows. An id may occur twice.
	OrdersByID(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Order, error)
}

// Orders reads order rows and applies payments (store.Store).
type Orders interface {
	Rows
	// Statuses omits ids that are not rows.
	Statuses(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error)
	// OrdersOfBuyer returns the buyer's newest orders, oldest first.
	OrdersOfBuyer(ctx context.Context, buyer string, limit int) ([]sale.Order, error)
	// OrdersInSale returns the buyer's rows in a sale, by id: all that are not cancelled, and up to limit cancelled ones.
	OrdersInSale(ctx context.Context, buyer, saleID string, limit int) ([]sale.Order, error)
	// Pay applies a callback of the payment provider. Its errors are sale.ErrNotFound if the order is not a row, and
	// store.ErrCallbackReused.
	Pay(ctx context.Context, p store.Payment) (settled store.Settlement, replayed bool, err error)
}

// DeadLetters reads the queue and its dead letters (queue.Shards). A shard that is unavailable affects its orders only.
type DeadLetters interface {
	DeadLetter(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error)
	// Dead calls yield, also concurrently, for those of the orders that are dead.
	Dead(ctx context.Context, ids []sale.OrderID, yield func(sale.OrderID))
	// Empty reports that no order waits for a worker in the shard of an order.
	Empty(ctx context.Context, id sale.OrderID) (bool, error)
}

// Verifier verifies buyers' tokens (token.Keys). The subject must not share memory with raw.
type Verifier interface {
	VerifyUntil(raw string) (subject string, expires time.Time, err error)
}

// UserLimiter limits the purchase requests of one buyer (userlimit.Limiter).
type UserLimiter interface {
	Allow(ctx context.Context, buyer string) userlimit.Result
}

// Details reads the picture and the description of a sale (store.Store).
type Details interface {
	Details(ctx context.Context, saleID string) (sale.Details, error)
}

// Points reads a buyer's points (points.Store).
type Points interface {
	Balance(ctx context.Context, buyer string) (int64, error)
}

// Subscriptions stores Web Push subscriptions (notify.Store).
type Subscriptions interface {
	Subscribe(ctx context.Context, p notify.Subscription, most int) (notify.Subscription, error)
	Subscriptions(ctx context.Context, buyer string) ([]notify.Subscription, error)
	Unsubscribe(ctx context.Context, buyer string, id int64) error
}
