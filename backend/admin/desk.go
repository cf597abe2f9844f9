// Package desk is what operators do: create, pause, resume, close and restock sales, and decide about dead orders. Every change is made in SQL first
// and then in Redis; what dies between the two is healed by the reconcile loop, or by doing it again. It never sells, and it never counts: see
// packages admission and ledger.
package admin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"sluice/backend/admission"
	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// Sales are the sales in SQL, the truth (order.Store).
type Sales interface {
	SaleChanges
	Sale(ctx context.Context, id string) (s sale.Sale, sold int64, err error)
	SaleSummaries(ctx context.Context) ([]store.SaleSummary, error)
}

// SaleChanges are what operators change of sales (order.Store).
type SaleChanges interface {
	CreateSale(ctx context.Context, s sale.Sale) (sale.Sale, error)
	SetSwitch(ctx context.Context, id string, to sale.Switch) (sale.Sale, error)
	OpenSale(ctx context.Context, id string, at time.Time) (sale.Sale, error)
	Restock(ctx context.Context, id string, add int64, requestKey string) (sale.Sale, error)
}

// Orders are the order rows (order.Store).
type Orders interface {
	Order(ctx context.Context, id sale.OrderID) (sale.Order, error)
	OrdersOf(ctx context.Context, saleID string, yield func(sale.Order) error) error
	DeadOrders
}

// DeadOrders settles orders that died in the queue (order.Store).
type DeadOrders interface {
	CancelDead(ctx context.Context, o store.DeadOrder, actor, reason string) (wasRow bool, err error)
	DropDead(ctx context.Context, o store.DeadOrder, actor, reason string, because error) error
}

// Pages are what the desk shows a page at a time: sales, and the desk log, which it writes as well (order.Store).
type Pages interface {
	SalesPage(ctx context.Context, q store.SalesQuery) ([]store.SaleSummary, error)
	Record(ctx context.Context, action, target, detail string) error
	Log(ctx context.Context, q store.LogQuery) ([]store.LogEntry, error)
	LastLog(ctx context.Context, target, action, or string) (store.LogEntry, error)
}

// OrderBook is what operators read and decide about orders that are rows, and about payments (order.Store).
type OrderBook interface {
	CancelOrder(ctx context.Context, id sale.OrderID, actor, reason string) (o sale.Order, changed bool, err error)
	OrderRows(ctx context.Context, q store.OrderQuery) ([]store.OrderRow, error)
	Callbacks(ctx context.Context, q store.CallbackQuery) ([]store.Callback, error)
	SettleRefund(ctx context.Context, number int64, actor, note string) (store.Callback, error)
}

// Books are the orders that are rows, and those of them whose units are on their way back.
type Books interface {
	CancelledOrders
	OrderBook
}

// Store is SQL (order.Store).
type Store interface {
	Sales
	Orders
	Pages
	Books
	RehearsedSales
}

// Stock is the sales in Redis (admission.Stock).
type Stock interface {
	View(ctx context.Context, id string) (admission.View, error)
	List(ctx context.Context) ([]admission.View, error)
	Views(ctx context.Context, ids []string) ([]admission.View, error)
	Update(ctx context.Context, s sale.Sale) error
	Load(ctx context.Context, s sale.Sale, orders func(yield func(sale.Order) error) error) error
}

// Shelves are all sales in Redis at once (admission.Stock).
type Shelves interface {
	Versions(ctx context.Context, ids []string) (map[string]int64, error)
	LoadAll(ctx context.Context, all []sale.Sale, orders func(saleID string, yield func(sale.Order) error) error) error
}

// Live is what Redis holds of sales (admission.Stock).
type Live interface {
	Stock
	Shelves
	Units
	Places
	RehearsedStock
}

// Places are what buyers hold in Redis, which proves that an order has a unit (admission.Stock).
type Places interface {
	HaveSlots(ctx context.Context, orders []sale.Order) ([]bool, error)
}

// Letters are the dead orders of one shard (queue.List).
type Letters interface {
	DeadLetters(ctx context.Context, q queue.DeadQuery) (page []queue.DeadLetter, next string, err error)
	DeadLetter(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error)
	RetryDead(ctx context.Context, id sale.OrderID) error
	BeginCancel(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error)
	FinishCancel(ctx context.Context, id sale.OrderID, giveBack bool) error
}

// Rubbish removes a text that was found on the queue of one shard and is no message (queue.List).
type Rubbish interface {
	DropRaw(ctx context.Context, key string) error
}

// Shard is the queue of one shard (queue.List).
type Shard interface {
	Letters
	Rubbish
}

// Desk is safe for concurrent use, by any number of processes.
type Desk struct {
	store  Store
	stock  Live
	shards []Shard
	space  keyspace.Space
	log    *slog.Logger
	count  *Counters
	known  known

	practice map[string]bool
}

// New makes a Desk. shards are the queues of all shards, in the order of their numbers. The logger is told when Redis cannot be brought up to date, and
// when it can again; nil is slog.Default().
func New(db Store, stock Live, shards []Shard, log *slog.Logger) *Desk {
	if log == nil {
		log = slog.Default()
	}
	return &Desk{store: db, stock: stock, shards: shards, space: keyspace.Space{Shards: len(shards)}, log: log, count: NewCounters(nil), practice: map[string]bool{}}
}

// CountWith makes the desk count with c, which others may share. Call it before anything else.
func (d *Desk) CountWith(c *Counters) { d.count = c }

// PendingError says that a change is stored in SQL and not yet in Redis, where it takes effect: the reconcile loop applies it as soon as Redis
// answers. It wraps sale.ErrUnavailable. Doing the same again is harmless, except for a restock without a request key.
type PendingError struct {
	Sale  sale.Sale // as stored
	Cause error
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("the change of sale %s is stored and will take effect as soon as Redis answers: %v", e.Sale.ID, e.Cause)
}

func (e *PendingError) Unwrap() []error { return []error{sale.ErrUnavailable, e.Cause} }

// finishing bounds the second half of a change, which goes on when the operator hangs up after the first.
const finishing = 15 * time.Second

func finish(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), finishing)
}
