// Package rebuild restores the data in Redis from SQL, from the messages that Redis still holds, and from the journals
// of the backends.
//
// A rebuild runs when the guard reports that Redis may have lost data, or on request. It holds all shards: workers
// cannot take batches, and nothing can be bought from the sales. Then it counts every order once (rows, dead letters,
// queue, slots of buyers), writes the sales and one queue per shard, waits for the journals, audits the sales, and
// marks the data as verified. Each rebuild has a fence, a number that SQL allocates; the scripts of an older rebuild
// fail. A rebuild that stops at any step leaves Redis unverified, and the next one starts over.
//
// A JournalWriter records accepted orders in the journal of a backend and restores them after a rebuild. The package
// does not decide whether Redis is trusted; see package guard.
package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// ErrBusy reports that another process runs a rebuild.
var ErrBusy = errors.New("a rebuild is in progress")

// Store is the part of SQL that a rebuild needs (store.Orders and journal.Registry).
type Store interface {
	SaleSummaries(ctx context.Context) ([]store.SaleSummary, error)
	Sale(ctx context.Context, id string) (def sale.Sale, sold int64, err error)
	OrdersOf(ctx context.Context, saleID string, yield func(sale.Order) error) error
	Statuses(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error)
	Count(ctx context.Context, saleID string, at store.Instant, among []sale.OrderID) (store.Count, error)
	// NextFence allocates a fence that is higher than above.
	NextFence(ctx context.Context, above int64) (int64, error)
	// BeginGeneration rejects writes of workers with batches of an older generation.
	BeginGeneration(ctx context.Context, fence int64) error
	Journals(ctx context.Context) ([]journal.Status, error)
}

// Pinner opens a client of the current Redis server that never connects to another one (guard.Guard).
type Pinner interface {
	Pin(ctx context.Context) (client *redis.Client, runID string, err error)
}

// Config configures a Rebuilder.
type Config struct {
	Pinner Pinner // required
	Store  Store  // required
	Space  keyspace.Space
	// Pause pauses a sale that does not balance; required.
	Pause func(ctx context.Context, saleID, reason string) error
	// JournalWait bounds the wait for the journals of other backends. 0 means 5 s.
	JournalWait time.Duration
	// Rebuilt, if set, is called when the data is verified and before Status reports the end of the rebuild.
	Rebuilt func(ctx context.Context)
	// Step, if set, is called with the name of each step before it runs. An error ends the rebuild. It is for tests.
	Step func(name string) error
	// Log is slog.Default() if nil.
	Log *slog.Logger
}

// alive is the time since the last heartbeat of a journal within which a rebuild waits for it.
const alive = 6 * time.Second

// lockDuration is the time that the lock of a crashed rebuild delays the next one. A running rebuild renews the lock.
const lockDuration = 3 * time.Second

// Rebuilder runs rebuilds. It is safe for concurrent use, in any number of processes.
type Rebuilder struct {
	cfg    Config
	status status
}

// New returns a Rebuilder.
func New(cfg Config) (*Rebuilder, error) {
	if cfg.Pinner == nil || cfg.Store == nil || cfg.Pause == nil {
		return nil, errors.New("rebuild: Config needs Pinner, Store and Pause")
	}
	if cfg.JournalWait <= 0 {
		cfg.JournalWait = 5 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Step == nil {
		cfg.Step = func(string) error { return nil }
	}
	return &Rebuilder{cfg: cfg}, nil
}

// Run rebuilds these sales; or all sales, if none are given or the data in Redis is not verified. It returns ErrBusy,
// or an error that wraps sale.ErrUnavailable. After an error Redis remains unverified until a rebuild succeeds.
func (r *Rebuilder) Run(ctx context.Context, only ...string) error {
	return r.run(ctx, func(context.Context) bool { return true }, only)
}

// RunIf rebuilds all sales if needed returns true. It calls needed when it holds the lock, so it does not repeat the
// rebuild of another process.
func (r *Rebuilder) RunIf(ctx context.Context, needed func(context.Context) bool) error {
	return r.run(ctx, needed, nil)
}

func (r *Rebuilder) run(ctx context.Context, needed func(context.Context) bool, only []string) error {
	client, runID, err := r.cfg.Pinner.Pin(ctx)
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	defer client.Close()
	if err := guard.CheckShards(ctx, client, r.cfg.Space); err != nil { // a rebuild would drop the data of other shards
		return fmt.Errorf("rebuild: %w", err)
	}
	lock, err := redisconn.Acquire(ctx, client, r.cfg.Space.All()[0].RebuildLock(), lockDuration)
	switch {
	case err != nil:
		return fmt.Errorf("rebuild: %w: %w", sale.ErrUnavailable, err)
	case lock == nil:
		return ErrBusy
	}
	ctx, release := lock.KeepRenewed(ctx)
	defer release()
	if !needed(ctx) {
		return nil
	}

	fence, err := r.nextFence(ctx, client)
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	r.status.begin(fence)
	stock := admission.NewStock(admission.StockConfig{Client: client, Space: r.cfg.Space})
	j := &job{Rebuilder: r, client: client, runID: runID, fence: fence, stock: stock}
	err = j.run(ctx, only)
	if err == nil && r.cfg.Rebuilt != nil {
		r.cfg.Rebuilt(ctx)
	}
	r.status.end(err)
	if err != nil {
		return fmt.Errorf("rebuild %d: %w", fence, err)
	}
	return nil
}

// nextFence returns a fence that SQL, this Redis and the journals have not seen. A database that was restored from a
// backup may have allocated higher fences before. If one were reused, Redis would reject the rebuild as an older one or
// take its queue for swapped, and a journal would take itself for restored.
func (r *Rebuilder) nextFence(ctx context.Context, client *redis.Client) (int64, error) {
	newest, err := guard.NewestFence(ctx, client, r.cfg.Space)
	if err != nil {
		return 0, err
	}
	journals, err := r.cfg.Store.Journals(ctx)
	if err != nil {
		return 0, err
	}
	for _, o := range journals {
		newest = max(newest, o.Generation)
	}
	return r.cfg.Store.NextFence(ctx, newest)
}
