package api

import (
	"context"
	"time"

	"sluice/backend/desk"
	"sluice/backend/ledger"
	"sluice/backend/order"
	"sluice/backend/queue"
	"sluice/backend/sale"
)

// What the operator's routes need of the rest (desk.Desk, ledger.Ledger, queue.List). Errors are those of package sale, and
// *desk.PendingError. Implementations are safe for concurrent use.

// SaleDesk makes, shows and restocks sales.
type SaleDesk interface {
	Create(ctx context.Context, actor string, s sale.Sale) (desk.View, error)
	Show(ctx context.Context, id string) (desk.View, error)
	List(ctx context.Context) ([]desk.View, error)
	Page(ctx context.Context, q order.SalesQuery) ([]desk.View, error)
	Restock(ctx context.Context, actor, id string, add int64, requestKey string) (desk.View, error)
}

// SwitchDesk turns sales on and off, and opens them before their time.
type SwitchDesk interface {
	Pause(ctx context.Context, actor, id string) (desk.View, error)
	Resume(ctx context.Context, actor, id string) (desk.View, error)
	Open(ctx context.Context, actor, id string) (desk.View, error)
	Close(ctx context.Context, actor, id string) (desk.View, error)
}

// DeadList shows dead orders.
type DeadList interface {
	Dead(ctx context.Context, q queue.DeadQuery) (page []queue.DeadLetter, next string, err error)
	DeadLetter(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error)
}

// DeadDesk decides about dead orders.
type DeadDesk interface {
	Retry(ctx context.Context, actor string, id sale.OrderID) error
	Cancel(ctx context.Context, actor string, id sale.OrderID, reason string) (desk.Cancelled, error)
	Drop(ctx context.Context, actor, key string) error
	Settle(ctx context.Context, actor string, s desk.Settlement) (done []desk.Settled, next string, err error)
}

// OrderDesk shows and cancels orders that are rows, and keeps the book of payments.
type OrderDesk interface {
	Order(ctx context.Context, id sale.OrderID) (desk.OrderView, error)
	Orders(ctx context.Context, q order.RowQuery) ([]order.Row, error)
	CancelOrder(ctx context.Context, actor string, id sale.OrderID, reason string) (desk.OrderView, error)
	Callbacks(ctx context.Context, q order.CallbackQuery) ([]order.Callback, error)
	SettleRefund(ctx context.Context, actor string, number int64, note string) (order.Callback, error)
}

// LogDesk keeps what operators did.
type LogDesk interface {
	Log(ctx context.Context, q order.LogQuery) ([]order.LogEntry, error)
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
	Audit(ctx context.Context, saleID string) (ledger.Report, error)
}

// QueueStats counts the queue of each lane (Lanes).
type QueueStats interface {
	ByLane(ctx context.Context) ([]queue.Stats, error)
}

// Pace tells how long the queue needs to drain (queue.Meters).
type Pace interface {
	Within() (d time.Duration, ok bool)
	Lane(lane int) queue.Pace
}
