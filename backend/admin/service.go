// Package admin changes and shows sales, orders, dead letters and rehearsals for admins. Every change is written to
// SQL first and then applied to Redis. If a process crashes between the two, the reconcile loop (Service.Run) or a
// repeated call applies the change. The package does not decide purchases (package admission) and does not audit
// sales (package audit).
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

// Store is the part of SQL that this package uses (package store).
type Store interface {
	// Sales.
	Sale(ctx context.Context, id string) (s sale.Sale, sold int64, err error)
	SaleSummaries(ctx context.Context) ([]store.SaleSummary, error)
	SalesPage(ctx context.Context, q store.SalesQuery) ([]store.SaleSummary, error)
	CreateSale(ctx context.Context, s sale.Sale) (sale.Sale, error)
	SetSwitch(ctx context.Context, id string, to sale.Switch) (sale.Sale, error)
	OpenSale(ctx context.Context, id string, at time.Time) (sale.Sale, error)
	Restock(ctx context.Context, id string, add int64, requestKey string) (sale.Sale, error)
	RemoveRehearsal(ctx context.Context, id string) (orders int64, err error)

	// Orders and payments.
	Order(ctx context.Context, id sale.OrderID) (sale.Order, error)
	OrdersOf(ctx context.Context, saleID string, yield func(sale.Order) error) error
	OrderRows(ctx context.Context, q store.OrderQuery) ([]store.OrderRow, error)
	CancelOrder(ctx context.Context, id sale.OrderID, actor, reason string) (o sale.Order, changed bool, err error)
	CancelDead(ctx context.Context, o store.DeadOrder, actor, reason string) (wasRow bool, err error)
	DropDead(ctx context.Context, o store.DeadOrder, actor, reason string, cause error) error
	Callbacks(ctx context.Context, q store.CallbackQuery) ([]store.Callback, error)
	SettleRefund(ctx context.Context, number int64, actor, note string) (store.Callback, error)

	// Cancelled orders whose units are not in Redis again yet.
	CancelOverdue(ctx context.Context, limit int) ([]sale.Order, error)
	Returning(ctx context.Context, after sale.OrderID, age time.Duration, limit int) ([]sale.Order, error)
	MarkReturned(ctx context.Context, returns []store.Return) error
	Returned(ctx context.Context, ids []sale.OrderID) ([]sale.OrderID, error)

	// The admin log.
	Record(ctx context.Context, action, target, detail string) error
	Log(ctx context.Context, q store.LogQuery) ([]store.LogEntry, error)
	LastLog(ctx context.Context, target, action, or string) (store.LogEntry, error)
}

// Stock is the part of Redis that this package uses (admission.Stock).
type Stock interface {
	View(ctx context.Context, id string) (admission.View, error)
	List(ctx context.Context) ([]admission.View, error)
	Views(ctx context.Context, ids []string) ([]admission.View, error)
	Versions(ctx context.Context, ids []string) (map[string]int64, error)
	Update(ctx context.Context, s sale.Sale) error
	Load(ctx context.Context, s sale.Sale, orders func(yield func(sale.Order) error) error) error
	LoadAll(ctx context.Context, all []sale.Sale, orders func(saleID string, yield func(sale.Order) error) error) error
	Remove(ctx context.Context, id string) error

	// HaveSlots reports which orders hold a slot of their buyer, which proves that they have a unit.
	HaveSlots(ctx context.Context, orders []sale.Order) ([]bool, error)
	CountUnits(ctx context.Context, id string) (admission.UnitCount, error)
	ReturnUnits(ctx context.Context, saleID string, orders []sale.Order) ([]int64, error)
	PendingReturns(ctx context.Context, saleID string) ([]sale.OrderID, error)
	ConfirmReturns(ctx context.Context, saleID string, ids []sale.OrderID) error
}

// Shard is the queue of one shard (queue.List, queue.Stream).
type Shard interface {
	DeadLetters(ctx context.Context, q queue.DeadQuery) (page []queue.DeadLetter, next string, err error)
	DeadLetter(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error)
	RetryDead(ctx context.Context, id sale.OrderID) error
	BeginCancel(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error)
	FinishCancel(ctx context.Context, id sale.OrderID, returnUnit bool) error
	// DropRaw removes an entry that is not a message.
	DropRaw(ctx context.Context, key string) error
}

// Config configures New and NewHoldExpirer. Fields without a default in their comment are required.
type Config struct {
	Store    Store
	Stock    Stock
	Shards   []Shard      // in the order of their numbers; NewHoldExpirer ignores them
	Practice []string     // sales that do not count as real: rehearsals may run while they are open
	Counters *Counters    // nil: not exported
	Log      *slog.Logger // nil: slog.Default
}

func (cfg *Config) setDefaults() {
	if cfg.Counters == nil {
		cfg.Counters = NewCounters(nil)
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
}

// Service is safe for concurrent use, by any number of processes.
type Service struct {
	store    Store
	stock    Stock
	shards   []Shard
	space    keyspace.Space
	practice map[string]bool
	log      *slog.Logger
	counters *Counters
	known    knownSales
}

// New returns a Service.
func New(cfg Config) *Service {
	cfg.setDefaults()
	s := &Service{
		store: cfg.Store, stock: cfg.Stock, shards: cfg.Shards, space: keyspace.Space{Shards: len(cfg.Shards)},
		practice: map[string]bool{}, log: cfg.Log, counters: cfg.Counters,
	}
	for _, id := range cfg.Practice {
		s.practice[id] = true
	}
	return s
}

// PendingError reports that a change is stored in SQL but not applied to Redis yet. The reconcile loop applies it
// when Redis answers. It wraps sale.ErrUnavailable. Repeating the call is harmless, except for a restock without a
// request key.
type PendingError struct {
	Sale  sale.Sale // as stored
	Cause error
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("the change of sale %s is stored and takes effect when Redis answers: %v", e.Sale.ID, e.Cause)
}

func (e *PendingError) Unwrap() []error { return []error{sale.ErrUnavailable, e.Cause} }

// RefusedError explains to the admin why the current state does not allow a change. It wraps sale.ErrConflict.
type RefusedError struct{ Detail string }

func (e *RefusedError) Error() string { return e.Detail }

func (e *RefusedError) Unwrap() error { return sale.ErrConflict }

func refused(format string, args ...any) error { return &RefusedError{fmt.Sprintf(format, args...)} }

// applyTimeout bounds the second half of a change.
const applyTimeout = 15 * time.Second

// detached returns a context for the second half of a change, which must not stop if the client disconnects.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
}
