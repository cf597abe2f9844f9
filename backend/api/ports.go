package api

import (
	"context"
	"time"

	"sluice/backend/admission"
	"sluice/backend/events"
	"sluice/backend/events/notify"
	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// What the public routes need of the rest. Errors follow package sale: ErrNotFound, ErrUnavailable. Implementations are safe for
// concurrent use.

// Admitter decides purchases (admission.Admitter).
type Admitter interface {
	Admit(ctx context.Context, r admission.Request) (admission.Decision, error)
}

// Stock shows sales, and orders that are not rows yet, as Redis holds them (admission.Stock).
type Stock interface {
	View(ctx context.Context, saleID string) (admission.View, error)
	List(ctx context.Context) ([]admission.View, error)
	Finder
	Accepted(ctx context.Context, saleID string) (int64, error)
	BypassList(ctx context.Context, saleID string, most int) (admission.BypassList, error)
}

// Finder finds orders that are not rows yet.
type Finder interface {
	FindOrder(ctx context.Context, buyer string, id sale.OrderID) (sale.Order, error)
	// Remember tells of which sale an order is, so that FindOrder need not look everywhere.
	Remember(id sale.OrderID, saleID string)
}

// Orders reads order rows (order.Store).
type Orders interface {
	Order(ctx context.Context, id sale.OrderID) (sale.Order, error)
	// Statuses answers for those of the ids that are rows.
	Statuses(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error)
}

// DeadLetters looks at orders that failed too often (the shards of queue.List).
type DeadLetters interface {
	DeadLetter(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error)
	Stats(ctx context.Context) (queue.Stats, error)
}

// Verifier tells who a token belongs to (token.Key). The subject must not share memory with raw.
type Verifier interface {
	Verify(raw string) (subject string, err error)
	VerifyUntil(raw string) (subject string, expires time.Time, err error)
}

// UserLimiter limits the purchase requests of one buyer (admission.UserLimiter).
type UserLimiter interface {
	Allow(ctx context.Context, buyer string) (admission.LimitResult, error)
}

// Callbacks tells whether a callback comes from the payment provider (payment.Verifier).
type Callbacks interface {
	Verify(id, timestamp, signature string, body []byte) error
}

// Payments settles callbacks of the payment provider (order.Store). Errors: sale.ErrNotFound for an order that is no row, order.ErrCallbackReused.
type Payments interface {
	Pay(ctx context.Context, p store.Payment) (settled store.Settlement, replayed bool, err error)
}

// Live tells open pages of their buyers' orders (push.Live).
type Live interface {
	Open(ctx context.Context, buyer, after string) (p *notify.Page, missed []events.Event, known bool, err error)
}

// BuyerOrders finds a buyer's newest orders that are rows, the oldest first (order.Store).
type BuyerOrders interface {
	OrdersOfBuyer(ctx context.Context, buyer string, limit int) ([]sale.Order, error)
}

// Subscriptions keeps the browsers in which buyers want to be told (order.Store).
type Subscriptions interface {
	Subscribe(ctx context.Context, p store.PushSubscription, most int) (store.PushSubscription, error)
	Subscriptions(ctx context.Context, buyer string) ([]store.PushSubscription, error)
	Unsubscribe(ctx context.Context, buyer string, id int64) error
}

// Check is one thing without which this process cannot serve.
type Check struct {
	Name  string
	Probe func(ctx context.Context) error
}
