// Package rebuild makes Redis from what is certain: the orders in SQL, the messages that Redis still holds, and the backends' journals. It runs when Redis has
// come back without a proof that it lost nothing, and when an operator asks. It knows every unit's place before it lets a sale be bought
// again, and whatever dies on the way, it begins anew and does no harm.
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
	redisscript "sluice/lua/redis"
)

// ErrBusy says that another process rebuilds already.
var ErrBusy = errors.New("a rebuild is under way")

// Store is what a rebuild reads in SQL, and how it fences off those who write (order.Store).
type Store interface {
	SaleSummaries(ctx context.Context) ([]store.SaleSummary, error)
	Generations
	Rows
}

// Generations number the rebuilds.
type Generations interface {
	NextFence(ctx context.Context, above int64) (int64, error)
	BeginGeneration(ctx context.Context, fence int64) error
	Journals(ctx context.Context) ([]journal.Status, error)
}

// Rows are the orders in SQL.
type Rows interface {
	OrdersOf(ctx context.Context, saleID string, yield func(sale.Order) error) error
	Statuses(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error)
	Count(ctx context.Context, saleID string, at store.Instant, among []sale.OrderID) (store.Count, error)
	Sale(ctx context.Context, id string) (def sale.Sale, sold int64, err error)
}

// Pinner opens connections to the server that answers now, and to no other (epoch.Guard).
type Pinner interface {
	Pin(ctx context.Context) (client *redis.Client, runID string, err error)
}

// Config tunes a Rebuilder. Zero fields take the defaults named here.
type Config struct {
	// Pause pauses a sale that does not balance; required.
	Pause func(ctx context.Context, saleID, reason string) error
	// JournalWait bounds the wait for the journals of other backends that are alive; 5 s.
	JournalWait time.Duration
	// Rebuilt, if set, is called when Redis is verified, and before Status says that the rebuild has ended: whoever waits for that may use Redis at once.
	Rebuilt func(ctx context.Context)
	// Step, if set, is told the name of each step before it is taken; an error ends the rebuild there. For tests.
	Step func(name string) error
	Log  *slog.Logger // slog.Default()
}

// alive is how long ago a journal's backend must have been heard of for the rebuild to wait for it.
const alive = 6 * time.Second

// lockLasts is how long a rebuild whose process died keeps the next one waiting. A living one that could not renew it in time has it still, unless another has begun.
const lockDuration = 3 * time.Second

// Rebuilder rebuilds. It is safe for concurrent use, by any number of processes.
type Rebuilder struct {
	pin     Pinner
	store   Store
	space   keyspace.Space
	cfg     Config
	scripts map[string]*redis.Script
	status  status
}

// New makes a Rebuilder.
func New(pin Pinner, db Store, space keyspace.Space, cfg Config) *Rebuilder {
	if cfg.JournalWait <= 0 {
		cfg.JournalWait = 5 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Step == nil {
		cfg.Step = func(string) error { return nil }
	}
	r := &Rebuilder{pin: pin, store: db, space: space, cfg: cfg, scripts: map[string]*redis.Script{}}
	for _, name := range []string{"begin", "suspend_sales", "slots", "dead_letters", "enqueue", "swap_queue", "sale", "resume_sale", "finish"} {
		r.scripts[name] = redisscript.Load("rebuild_" + name)
	}
	return r
}

// Run rebuilds these sales, or all when there are none given or the data in Redis is not verified. It returns ErrBusy when another process is at it, or an
// error that wraps sale.ErrUnavailable; Redis then stays unverified until a rebuild succeeds.
func (r *Rebuilder) Run(ctx context.Context, only ...string) error {
	return r.run(ctx, func(context.Context) bool { return true }, only)
}

// RunIf is Run for all sales, if that is still needed when no other rebuild is at it: the one that was may have done it. It returns nil if it is not.
func (r *Rebuilder) RunIf(ctx context.Context, needed func(context.Context) bool) error {
	return r.run(ctx, needed, nil)
}

func (r *Rebuilder) run(ctx context.Context, needed func(context.Context) bool, only []string) error {
	client, runID, err := r.pin.Pin(ctx)
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	defer client.Close()
	if err := guard.CheckShards(ctx, client, r.space); err != nil { // what the other shards hold would be forgotten
		return fmt.Errorf("rebuild: %w", err)
	}
	lock, err := redisconn.Acquire(ctx, client, r.space.All()[0].RebuildLock(), lockDuration)
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
	j := &job{Rebuilder: r, client: client, runID: runID, fence: fence, stock: admission.NewStock(client, r.space)}
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

// nextFence is a number that SQL, this Redis and the journals have not seen. A database that was restored has given numbers that it does not remember: were
// one of them used again, Redis would refuse the rebuild as an older one, or take its queue for put in place already, and a journal itself for brought.
func (r *Rebuilder) nextFence(ctx context.Context, client *redis.Client) (int64, error) {
	newest, err := guard.NewestFence(ctx, client, r.space)
	if err != nil {
		return 0, err
	}
	journals, err := r.store.Journals(ctx)
	if err != nil {
		return 0, err
	}
	for _, o := range journals {
		newest = max(newest, o.Generation)
	}
	return r.store.NextFence(ctx, newest)
}
