package rebuild

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"sluice/backend/recovery/journal"
	"sluice/backend/sale"
)

const (
	// bringEvery is how often a Keeper looks whether Redis was rebuilt.
	restoreInterval = 200 * time.Millisecond
	// beatEvery is how often a journal says that its backend is alive; see alive.
	heartbeatInterval = 2 * time.Second
	// trimEvery is how often what has become a row is dropped from the journal.
	trimInterval = 5 * time.Second
)

// KeeperStore is what a Keeper needs of SQL (order.Store).
type JournalStore interface {
	Heartbeat(ctx context.Context, id string, generation int64) error
	Statuses(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error)
}

// Watched tells which Redis this process trusts (epoch.Guard).
type GuardState interface {
	Generation() int64
	RestoreFence(ctx context.Context) (fence int64, err error)
}

// Keeper keeps the journal of one backend: it writes accepted orders down, brings them to every Redis that was rebuilt, and drops what has become a row. It is safe for
// concurrent use.
type JournalWriter struct {
	journal  *journal.Journal
	guard    GuardState
	restorer *Restorer
	store    JournalStore
	log      *slog.Logger

	written recent      // orders of the last while
	late    atomic.Bool // an order was written down after the journal was brought to a Redis that may not have it
	beat    time.Time
	trim    time.Time
}

// NewKeeper makes a Keeper.
func NewJournalWriter(j *journal.Journal, guard GuardState, adopter *Restorer, store JournalStore, log *slog.Logger) *JournalWriter {
	if log == nil {
		log = slog.Default()
	}
	return &JournalWriter{journal: j, guard: guard, restorer: adopter, store: store, log: log}
}

// Generation is admission.Recorder's.
func (k *JournalWriter) Generation() int64 { return k.guard.Generation() }

// Record is admission.Recorder's. Should Redis have been rebuilt between the acceptance and now, the journal is brought once more.
func (k *JournalWriter) Record(generation int64, orders []sale.Order) {
	if orders = k.written.without(orders); len(orders) == 0 {
		return
	}
	if k.journal.Append(orders...) == nil { // else it has told the log, and a repetition is written down again
		k.written.add(orders)
	}
	if k.journal.Restored() > generation {
		k.late.Store(true)
	}
}

// Run keeps the journal until ctx ends; it returns nil.
func (k *JournalWriter) Run(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := k.journal.Run(ctx); err != nil {
			k.log.Error("journal: not synced at the end", "err", err)
		}
	}()
	defer func() { <-done }()
	tick := time.NewTicker(restoreInterval)
	defer tick.Stop()
	for {
		k.RunOnce(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// RunOnce does what is due.
func (k *JournalWriter) RunOnce(ctx context.Context) {
	brought, err := k.Restore(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, sale.ErrUnavailable) {
		k.log.Error("journal: cannot be brought to Redis", "err", err)
	}
	now := time.Now()
	if brought || now.Sub(k.beat) >= heartbeatInterval {
		if err := k.store.Heartbeat(ctx, k.journal.ID(), k.journal.Restored()); err == nil {
			k.beat = now
		}
	}
	if now.Sub(k.trim) >= trimInterval {
		k.trim = now
		if err := k.journal.Trim(ctx, k.store); err != nil && !errors.Is(err, sale.ErrUnavailable) && ctx.Err() == nil {
			k.log.Error("journal: cannot be trimmed", "err", err)
		}
	}
}

// Bring gives the orders of the journal to a Redis that was rebuilt since they were last brought; it tells whether there was one.
func (k *JournalWriter) Restore(ctx context.Context) (brought bool, err error) {
	fence, err := k.guard.RestoreFence(ctx)
	if err != nil || fence == 0 {
		return false, err
	}
	late := k.late.Swap(false)
	if fence == k.journal.Restored() && !late { // a lower one: both stores were restored, and count from an older number
		return false, nil
	}
	defer func() {
		if err != nil && late {
			k.late.Store(true)
		}
	}()
	var orders []sale.Order
	seen := map[sale.OrderID]bool{}
	broken, err := k.journal.Orders(func(o sale.Order) {
		if !seen[o.ID] {
			seen[o.ID] = true
			orders = append(orders, o)
		}
	})
	if err != nil {
		return false, err
	}
	done, err := k.restorer.RestoreOrders(ctx, fence, orders)
	if err != nil {
		return false, err
	}
	if err := k.journal.SetRestored(fence); err != nil {
		return false, err
	}
	if done.Requeued > 0 || done.Unbacked > 0 || broken > 0 {
		k.log.Warn("journal: orders that Redis had lost are back", "queued", done.Requeued, "unbacked", done.Unbacked, "known", done.Known,
			"rows", done.Rows, "unreadable", broken)
	}
	return true, nil
}
