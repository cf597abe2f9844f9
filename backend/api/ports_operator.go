package api

import (
	"context"
	"time"

	"sluice/backend/admin"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// What the operator's routes need of the rest (desk.Desk, ledger.Ledger, queue.List). Errors are those of package sale, and
// *desk.PendingError. Implementations are safe for concurrent use.

// SaleDesk makes, shows and restocks sales.
type SaleDesk interface {
	Create(ctx context.Context, actor string, s sale.Sale) (admin.View, error)
	Show(ctx context.Context, id string) (admin.View, error)
	List(ctx context.Context) ([]admin.View, error)
	Page(ctx context.Context, q store.SalesQuery) ([]admin.View, error)
	Restock(ctx context.Context, actor, id string, add int64, requestKey string) (admin.View, error)
}

// SwitchDesk turns sales on and off, and opens them before their time.
type SwitchDesk interface {
	Pause(ctx context.Context, actor, id string) (admin.View, error)
	Resume(ctx context.Context, actor, id string) (admin.View, error)
	Open(ctx context.Context, actor, id string) (admin.View, error)
	Close(ctx context.Context, actor, id string) (admin.View, error)
}

// DeadList shows dead orders.
type DeadList interface {
	Dead(ctx context.Context, q queue.DeadQuery) (page []queue.DeadLetter, next string, err error)
	DeadLetter(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error)
}

// DeadDesk decides about dead orders.
type DeadDesk interface {
	Retry(ctx context.Context, actor string, id sale.OrderID) error
	Cancel(ctx context.Context, actor string, id sale.OrderID, reason string) (admin.Cancelled, error)
	Drop(ctx context.Context, actor, key string) error
	Settle(ctx context.Context, actor string, s admin.Settlement) (done []admin.Settled, next string, err error)
}

// OrderDesk shows and cancels orders that are rows, and keeps the book of payments.
type OrderDesk interface {
	Order(ctx context.Context, id sale.OrderID) (admin.OrderView, error)
	Orders(ctx context.Context, q store.RowQuery) ([]store.Row, error)
	CancelOrder(ctx context.Context, actor string, id sale.OrderID, reason string) (admin.OrderView, error)
	Callbacks(ctx context.Context, q store.CallbackQuery) ([]store.Callback, error)
	SettleRefund(ctx context.Context, actor string, number int64, note string) (store.Callback, error)
}

// LogDesk keeps what operators did.
type LogDesk interface {
	Log(ctx context.Context, q store.LogQuery) ([]store.LogEntry, error)
	Note(ctx context.Context, actor, action, target, detail string) error
}

// SalesDesk is what operators do with sales, and with copies of them.
type SalesDesk interface {
	SaleDesk
	SwitchDesk
	RehearsalDesk
}

// LetterDesk is what operators see of dead letters, and do with them.
type LetterDesk interface {
	DeadList
	DeadDesk
}

// Desk is everything an operator does.
type Desk interface {
	LogDesk
	SalesDesk
	OrderDesk
	LetterDesk
}

// Auditor proves the count of a sale.
type Auditor interface {
	Audit(ctx context.Context, saleID string) (audit.Report, error)
}

// QueueStats counts the queue of each shard (Shards).
type QueueStats interface {
	ByShard(ctx context.Context) ([]queue.Stats, error)
}

// Pace tells how long the queue needs to drain (queue.Meters).
type Pace interface {
	Within() (d time.Duration, ok bool)
	Shard(shard int) queue.Pace
}
