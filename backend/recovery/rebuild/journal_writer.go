package rebuild

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice/backend/admission"
	"sluice/backend/recovery/journal"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/internal/loop"
)

const (
	// restoreInterval is the interval at which a JournalWriter that is not woken checks whether Redis was rebuilt.
	// rebuildingInterval is the interval while nothing can be restored yet (RestoreFence returns 0): a rebuild is due or
	// in progress, and will wait for all journals. unavailableInterval is the interval while Redis or SQL is not
	// available, because a rebuild may follow.
	restoreInterval     = 2 * time.Second
	rebuildingInterval  = 20 * time.Millisecond
	unavailableInterval = 100 * time.Millisecond
	// trimInterval is how often orders that are rows are removed from the journal.
	trimInterval = 5 * time.Second
	// maxStalled is the time without a restored order after which rebuilds no longer wait for the journal of a backend
	// that does not reach Redis or SQL. A rebuild that waits reaches both, so only this backend is disconnected.
	maxStalled = 30 * time.Second
	// writtenSize is the size of a cache that takes about 4 MB. An evicted order can be recorded again, without effect.
	writtenSize = 1 << 16
	// maxUnwritten bounds the orders that wait for a journal that cannot be written; they take about 5 MB.
	maxUnwritten = 1 << 16
)

// JournalStore is the part of SQL that a JournalWriter needs (store.Store and journal.Registry).
type JournalStore interface {
	journal.TrimStore
	Heartbeat(ctx context.Context, id string, shard int, generation int64) error
	RemoveSilent(ctx context.Context, shard int) error
}

// JournalWriterConfig configures a JournalWriter. All fields except Rebuilds, OnlyCopy and Log are required.
type JournalWriterConfig struct {
	Journal  *journal.Journal
	Restorer *Restorer
	Store    JournalStore
	Rebuilds loop.Wake // wakes Run when a rebuild was noticed (guard.Guard.Rebuilds); nil: Run checks every two seconds
	// OnlyCopy states that Redis does not outlive the process, so that only the journal keeps orders that are not rows.
	// Then a purchase fails if the journal cannot be written.
	OnlyCopy bool
	Log      *slog.Logger // slog.Default() if nil
}

// JournalWriter owns the journal of one shard in one backend: it records accepted orders, restores them in every
// rebuilt Redis, and removes orders that are rows. It is safe for concurrent use.
type JournalWriter struct {
	*heartbeats

	cfg JournalWriterConfig

	written *admission.OrderCache[struct{}] // orders that were recorded recently, for replays
	mu      sync.Mutex
	// unwritten are the newest orders that could not be appended, for example to a full disk; guarded by mu.
	unwritten []sale.Order
	// restoring is the generation of the last Restore, also if it failed; 0: there was none.
	restoring atomic.Int64
	// late is set if an order was recorded during or after a Restore and may be missing in the rebuilt Redis.
	late atomic.Bool
	// progressed is when the restoration in progress began, or last restored an order.
	progressed time.Time
	// warned is the last generation for which orders that cannot be restored were logged. 0: none, and Trim must not
	// remove them yet.
	warned  int64
	woken   loop.Wake     // after Record has set late
	next    time.Duration // until the next check
	trimmed time.Time     // last trim
	// restoreFailed and trimFailed are the last file errors that were logged; empty after a success.
	restoreFailed, trimFailed string
}

// NewJournalWriter returns a JournalWriter. The caller closes the journal.
func NewJournalWriter(cfg JournalWriterConfig) *JournalWriter {
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	return &JournalWriter{
		heartbeats: newHeartbeats(cfg), cfg: cfg,
		woken: loop.NewWake(), written: admission.NewOrderCache[struct{}](writtenSize),
	}
}

// Generation returns the generation of the data in Redis.
func (w *JournalWriter) Generation() int64 { return w.cfg.Restorer.Generation() }

// errUnwritten is the error of purchases while a journal that is the only copy lacks an order.
var errUnwritten = errors.New("the journal cannot be written")

// writable returns errUnwritten while the journal is the only copy and lacks an order.
func (w *JournalWriter) writable() error {
	if !w.cfg.OnlyCopy {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unwritten) > 0 {
		return errUnwritten
	}
	return nil
}

// Record appends accepted orders to the journal. If Redis was rebuilt since the orders were accepted, the next Restore
// restores the journal again. Orders that cannot be appended are appended by a later RunOnce, or when Run ends. Record
// returns an error for them if the journal is the only copy.
func (w *JournalWriter) Record(generation int64, orders []sale.Order) error {
	known := func(o sale.Order) bool { _, known := w.written.Get(o.ID); return known }
	if slices.ContainsFunc(orders, known) {
		orders = slices.DeleteFunc(slices.Clone(orders), known)
	}
	if len(orders) == 0 {
		return nil
	}
	ok := w.append(orders)
	if ok {
		for _, o := range orders {
			w.written.Put(o.ID, struct{}{})
		}
	}
	// If the generations differ, Redis was rebuilt after the orders were accepted. After both stores were restored from
	// backups, restoring can be the lower one.
	if restoring := w.restoring.Load(); restoring != 0 && restoring != generation {
		w.late.Store(true)
		w.woken.Up()
	}
	if !ok && w.cfg.OnlyCopy {
		return errUnwritten
	}
	return nil
}

// append appends orders to the journal, which logs a failure, or keeps them for appendUnwritten.
func (w *JournalWriter) append(orders []sale.Order) (ok bool) {
	if w.cfg.Journal.Append(orders...) == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unwritten = append(w.unwritten, orders...)
	w.unwritten = w.unwritten[max(0, len(w.unwritten)-maxUnwritten):]
	return false
}

// appendUnwritten appends the orders that could not be appended before. They may be rows by now. It holds mu, so that
// writable waits for the result.
func (w *JournalWriter) appendUnwritten() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unwritten) > 0 && w.cfg.Journal.Append(w.unwritten...) == nil {
		w.unwritten = nil
	}
}

// JournalWriters are the writers of all shards. They implement admission.Recorder.
type JournalWriters []*JournalWriter

// Generation returns the generation of the data of a shard, and an error while its journal is the only copy and lacks
// an order.
func (w JournalWriters) Generation(shard keyspace.Shard) (int64, error) {
	return w[shard].Generation(), w[shard].writable()
}

// Record appends accepted orders to the journal of their shard; see JournalWriter.Record.
func (w JournalWriters) Record(shard keyspace.Shard, generation int64, orders []sale.Order) error {
	return w[shard].Record(generation, orders)
}

// Register stores a heartbeat of every journal, so that a rebuild waits for them. Otherwise a rebuild could end before
// the first heartbeat of Run, and sell the units of orders that only a journal has. Call it before the first purchase.
// Register also removes journals that have been silent for 90 days. An error is that of SQL.
func (w JournalWriters) Register(ctx context.Context) error {
	for shard, one := range w {
		if err := one.Heartbeat(ctx); err != nil {
			return err
		}
		if err := one.store.RemoveSilent(ctx, shard); err != nil {
			return err
		}
	}
	return nil
}

// Run maintains all journals until ctx ends. It returns nil.
func (w JournalWriters) Run(ctx context.Context) error {
	return errors.Join(loop.Each(w, -1, func(_ int, one *JournalWriter) error { return one.Run(ctx) })...)
}

// Run maintains the journal until ctx ends. It returns nil.
func (w *JournalWriter) Run(ctx context.Context) error {
	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() {
		if err := w.cfg.Journal.Run(ctx); err != nil {
			w.cfg.Log.Error("journal: final sync failed", "err", err)
		}
	})
	others.Go(func() { w.send(ctx) })
	for ctx.Err() == nil {
		until(ctx, w.cfg.Rebuilds, w.superseded, func(ctx context.Context) {
			w.RunOnce(ctx)
			w.sleep(ctx)
		})
	}
	w.appendUnwritten()
	return nil
}

// until calls do with a context that ends with ctx, or after a wake-up for which stop returns true.
func until(ctx context.Context, wake loop.Wake, stop func(context.Context) bool, do func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-wake:
				if stop(ctx) {
					cancel()
				}
			}
		}
	})
	do(ctx)
	cancel()
	watching.Wait()
}

// superseded reports whether Redis has other data than in the last Restore, or is not available.
func (w *JournalWriter) superseded(ctx context.Context) bool {
	fence, err := w.cfg.Restorer.guard.RestoreFence(ctx)
	return err != nil || fence != w.restoring.Load()
}

// sleep waits until the next check is due.
func (w *JournalWriter) sleep(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(loop.UntilTick(w.next)):
	case <-w.woken:
	}
}

// RunOnce completes, restores and trims the journal as far as each is due. It does not send heartbeats.
func (w *JournalWriter) RunOnce(ctx context.Context) {
	w.appendUnwritten()
	_, err := w.Restore(ctx)
	w.logNew(ctx, "journal: restore failed", err, &w.restoreFailed)
	if w.warned == 0 || time.Since(w.trimmed) < trimInterval {
		return
	}
	w.trimmed = time.Now()
	w.logNew(ctx, "journal: trim failed", w.cfg.Journal.Trim(ctx, w.cfg.Store), &w.trimFailed)
}

// logNew logs a file error unless its text equals last, which the previous call with an error has set. It does not log
// unavailable stores, because metrics report them.
func (w *JournalWriter) logNew(ctx context.Context, message string, err error, last *string) {
	switch {
	case err == nil:
		*last = ""
	case ctx.Err() == nil && !errors.Is(err, sale.ErrUnavailable) && err.Error() != *last:
		*last = err.Error()
		w.cfg.Log.Error(message, "err", err)
	}
}

// Restore restores the orders of the journal if Redis was rebuilt since the last Restore, or if no call has succeeded
// yet. It reports whether it did. After an error the orders that could be read are restored, and the next Restore tries
// all again.
func (w *JournalWriter) Restore(ctx context.Context) (restored bool, err error) {
	fence, err := w.cfg.Restorer.guard.RestoreFence(ctx)
	w.next = restoreInterval
	switch {
	case err != nil:
		w.next = unavailableInterval
		w.stall()
		return false, err
	case fence == 0:
		w.next = rebuildingInterval
		return false, nil
	}
	// A lower fence means that both stores were restored from backups, and the orders must be restored as well.
	if late := w.late.Swap(false); fence == w.Restored() && !late {
		return false, nil
	}
	// restoring is set before the files are read. Record writes an order first and compares restoring afterwards, so each
	// order is either read here or sets late.
	first := w.restoring.Swap(fence) != fence
	if first || w.Restored() > 0 {
		w.report(-fence) // the rebuild waits until the orders are restored, also during an outage
		w.progressed = time.Now()
	}
	err = w.restoreAt(ctx, fence)
	switch {
	case err == nil:
		w.report(fence)
	case ctx.Err() != nil:
	case errors.Is(err, sale.ErrUnavailable):
		w.next = unavailableInterval
		if first {
			w.cfg.Log.Warn("journal: restoring orders fails; retrying", "err", err)
		}
		w.stall()
	default:
		w.report(0) // the rebuild does not wait: a file error may last
	}
	return err == nil, err
}

// stall ends the report that the orders are being restored if no order was restored for maxStalled. They are restored
// later, but the rebuild does not wait for them, and their units may be sold again.
func (w *JournalWriter) stall() {
	if w.Restored() < 0 && time.Since(w.progressed) > maxStalled {
		w.report(0)
		w.cfg.Log.Error("journal: rebuilds no longer wait for its orders, because this backend does not reach Redis or the "+
			"database: check its connections", "since", w.progressed)
	}
}

// restoreAt restores the orders of the journal, and the unwritten ones, in the Redis with this fence. After a file
// error it restores the orders that could be read.
func (w *JournalWriter) restoreAt(ctx context.Context, fence int64) error {
	var orders []sale.Order
	seen := map[sale.OrderID]bool{}
	add := func(o sale.Order) {
		if !seen[o.ID] {
			seen[o.ID] = true
			orders = append(orders, o)
		}
	}
	broken, unreadable := w.cfg.Journal.Orders(add)
	w.mu.Lock()
	unwritten := w.unwritten // not copied, which would delay purchases: its elements do not change
	w.mu.Unlock()
	for _, o := range unwritten {
		add(o)
	}
	done, err := w.cfg.Restorer.RestoreAt(ctx, fence, orders)
	if done.Requeued+done.Unbacked > 0 {
		w.progressed = time.Now()
	}
	if err != nil {
		return err
	}
	if done.Requeued > 0 || done.Unbacked > 0 || broken > 0 {
		w.cfg.Log.Warn("journal: restored orders that Redis had lost", "requeued", done.Requeued, "unbacked", done.Unbacked,
			"known", done.Known, "rows", done.Rows, "unreadable", broken)
	}
	if w.warned != fence {
		w.warned = fence
		w.logSkipped(done.Skipped)
	}
	return unreadable
}

// skippedPerLine bounds the order ids in a warning.
const skippedPerLine = 100

// logSkipped logs all orders that no rebuild can restore, because their sale was archived or SQL does not have it. The
// journal may have the last copy of such an order: Redis may have lost it while the backend was stopped. Trim removes
// the orders of archived sales afterwards. Rehearsals are removed on purpose.
func (w *JournalWriter) logSkipped(orders []sale.Order) {
	bySale := map[string][]string{}
	for _, o := range orders {
		if !sale.IsRehearsal(o.SaleID) {
			bySale[o.SaleID] = append(bySale[o.SaleID], o.ID.String())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(bySale)) {
		for ids := range slices.Chunk(bySale[id], skippedPerLine) {
			w.cfg.Log.Warn("journal: orders cannot be restored: their sale is archived or not in SQL; compare them with the "+
				"files of the archive", "sale", id, "orders", len(ids), "ids", ids)
		}
	}
}
