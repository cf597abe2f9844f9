// Package admin changes and shows sales, rehearsals and orders (Service) and dead orders (DeadLetters) for admins.
// Every change is written to SQL first and then applied to Redis. If a process crashes between the two, the reconcile
// loop (Service.Run) or a repeated call applies the change. HoldExpirer cancels unpaid orders. The package does not
// decide purchases (package admission) and does not audit sales (package audit).
//
// The context of every change carries the actor and the reason for the action log (store.WithActor, store.WithReason).
package admin

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sluice/backend/admission"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/internal/plural"
)

// Store is the part of SQL that this package uses (package store).
type Store interface {
	Sale(ctx context.Context, id string) (s sale.Sale, sold int64, err error)
	SaleSummaries(ctx context.Context) ([]store.SaleSummary, error)
	ArchivedSales(ctx context.Context) ([]string, error)
	Archive(ctx context.Context, saleID string) (store.Archive, error)
	SalesPage(ctx context.Context, q store.SalesQuery) ([]store.SaleSummary, error)
	CreateSale(ctx context.Context, s sale.Sale) (sale.Sale, error)
	SetSwitch(ctx context.Context, id string, to sale.Switch) (sale.Sale, error)
	OpenSale(ctx context.Context, id string, at time.Time) (sale.Sale, error)
	Restock(ctx context.Context, id string, add int64, requestKey string) (sale.Sale, error)
	SetDetails(ctx context.Context, id string, to sale.Details) (sale.Sale, error)
	RemoveRehearsal(ctx context.Context, id string) (orders int64, err error)
	Record(ctx context.Context, action, target, detail string) error
	LogRetry(ctx context.Context, o sale.Order, failure string) error
	LastLog(ctx context.Context, target string, actions ...string) (store.LogEntry, error)

	Order(ctx context.Context, id sale.OrderID) (sale.Order, error)
	OrdersOf(ctx context.Context, of spread.Part, yield func(sale.Order) error) error
	OrderRows(ctx context.Context, q store.OrderQuery) ([]store.OrderRow, error)
	Callbacks(ctx context.Context, q store.CallbackQuery) ([]store.Callback, error)
	CancelOrder(ctx context.Context, id sale.OrderID) (o sale.Order, changed bool, err error)
	CancelOverdue(ctx context.Context, limit int) ([]sale.Order, error)
	CancelDead(ctx context.Context, o store.DeadOrder) (wasRow bool, err error)
	DropDead(ctx context.Context, o store.DeadOrder, cause error) error
	// Returning returns cancelled orders with a unit that is not in Redis again yet.
	Returning(ctx context.Context, after sale.OrderID, age time.Duration, limit int) ([]sale.Order, error)
	MarkReturned(ctx context.Context, returns []store.Return) error
	Returned(ctx context.Context, ids []sale.OrderID) ([]sale.Order, error)
}

// Stock is the part of Redis that this package uses (admission.Stock).
type Stock interface {
	View(ctx context.Context, id string) (admission.View, error)
	List(ctx context.Context) ([]admission.View, error)
	Views(ctx context.Context, ids []string) ([]admission.View, error)
	// ShardOf returns the shard of a sale or segment, and LearnSpread stores the number of segments of a sale.
	ShardOf(of spread.Part) keyspace.Shard
	LearnSpread(s sale.Sale)
	// Spread returns the number of segments of a sale, or 0 for a sale in one shard. It returns admission.ErrNotLoaded
	// if Redis does not hold the sale.
	Spread(ctx context.Context, id string) (int, error)
	Versions(ctx context.Context, parts []spread.Part) (map[spread.Part]int64, error)
	Update(ctx context.Context, s sale.Sale) error
	UpdatePart(ctx context.Context, p admission.SalePart) error
	LoadAll(ctx context.Context, parts []admission.SalePart, orders admission.OrdersOf) error
	Remove(ctx context.Context, s sale.Sale) error
	// SalesIn returns the sales that a shard holds completely or in part, and RemoveFrom removes one from the shard.
	SalesIn(ctx context.Context, shard keyspace.Shard) ([]string, error)
	RemoveFrom(ctx context.Context, shard keyspace.Shard, id string) error

	// HaveSlots reports which orders hold a slot of their buyer, which proves that they have a unit.
	HaveSlots(ctx context.Context, orders []sale.Order) ([]bool, error)
	CountUnits(ctx context.Context, of spread.Part) (admission.UnitCount, error)
	ReturnUnits(ctx context.Context, of spread.Part, orders []sale.Order) ([]int64, error)
	PendingReturns(ctx context.Context, of spread.Part) ([]sale.OrderID, error)
	ConfirmReturns(ctx context.Context, of spread.Part, orders []sale.Order) error
}

// Config configures New, NewDeadLetters and NewHoldExpirer. Fields without a default in their comment are required.
type Config struct {
	Store    Store
	Stock    Stock
	Shards   []Shard  // in the order of their numbers; NewHoldExpirer ignores them
	Practice []string // sales that do not count as real: rehearsals may run while they are open
	// Refillers move a unit of another segment for a retried dead order that has no unit, if its segment has none left;
	// nil: no unit is moved.
	Refillers *spread.Refillers
	Counters  *Counters    // nil: not exported
	Log       *slog.Logger // nil: slog.Default
}

func (cfg *Config) setDefaults() {
	if cfg.Counters == nil {
		cfg.Counters = NewCounters(nil)
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
}

// Service changes and shows sales, rehearsals and order rows. It is safe for concurrent use, by any number of
// processes.
type Service struct {
	store    Store
	stock    Stock
	dead     *DeadLetters
	practice []string
	log      *slog.Logger
	counters *Counters

	knownMu  sync.RWMutex
	read     bool                 // SQL was read
	known    map[string]sale.Sale // sales in SQL at the last read that are not archived, and those created since
	archived map[string]bool      // archived sales at the last read
	created  []sale.Sale          // since the last read began; that read may lack them
}

// New returns a Service.
func New(cfg Config) *Service {
	cfg.setDefaults()
	return &Service{
		store: cfg.Store, stock: cfg.Stock, dead: NewDeadLetters(cfg), practice: cfg.Practice, log: cfg.Log,
		counters: cfg.Counters, known: map[string]sale.Sale{},
	}
}

// PendingError reports that a change is stored in SQL but not applied to Redis yet, or that its result could not be
// read. The reconcile loop applies it when Redis answers. It wraps sale.ErrUnavailable. Repeating the call is harmless,
// except for a restock without a request key.
type PendingError struct {
	Sale  sale.Sale // as stored
	Cause error
}

func (e *PendingError) Error() string {
	return fmt.Sprintf(
		"the change of sale %s is stored and takes effect at the latest when Redis is available again: %v",
		e.Sale.ID,
		e.Cause,
	)
}

func (e *PendingError) Unwrap() []error { return []error{sale.ErrUnavailable, e.Cause} }

// UnavailableError names shards that could not be read. It wraps sale.ErrUnavailable.
type UnavailableError struct {
	Shards []int // in ascending order
	Cause  error // of the last one
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("cannot read %s: %v", plural.Named("shard", e.Shards), e.Cause)
}

func (e *UnavailableError) Unwrap() []error { return []error{sale.ErrUnavailable, e.Cause} }

// add adds a shard.
func (e *UnavailableError) add(shard int, cause error) {
	e.Shards, e.Cause = append(e.Shards, shard), cause
}

// applyTimeout bounds the second half of a change.
const applyTimeout = 15 * time.Second

// detached returns a context for the second half of a change, which must not stop if the client disconnects.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
}
