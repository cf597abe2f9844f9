// Package rebuild restores the data of a shard in Redis from SQL, from the messages that Redis still holds, and from
// the journals of the backends.
//
// A rebuild runs when the guard of a shard reports that Redis may have lost data, or on request. It holds the shard:
// workers cannot take batches, and nothing can be bought from its sales. Then it counts every order once (rows, dead
// letters, queue, slots of buyers), writes the sales and the queue, waits for the journals, audits the sales, and marks
// the data as verified. Other shards are not affected. Each rebuild has a fence, a number that SQL allocates; the
// scripts of an older rebuild fail. A rebuild that stops at any step leaves the shard unverified, and the next one
// starts over.
//
// A JournalWriter records accepted orders in the journal of a backend. After a rebuild has replaced the queue, the
// JournalWriter restores those that Redis has lost, and reports this with its heartbeats in SQL. The rebuild waits for
// these reports of running backends before purchases resume (ADR 9).
//
// The package does not decide whether Redis is trusted; see package guard.
package rebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
)

// Store is the part of SQL that a rebuild needs (store.Store and journal.Registry).
type Store interface {
	Fences
	audit.Rows
	journal.Rows
	admission.Claimer
	LastReturn(ctx context.Context, saleID string) (number int64, err error)
	// RecoverAllocations corrects the allocations of a database that was restored from a backup.
	RecoverAllocations(ctx context.Context, saleID string, applied []spread.State) error
}

// Pinner provides clients that are not guarded (guard.Shards).
type Pinner interface {
	// Pin opens a client of the current server of a shard that never connects to another one.
	Pin(ctx context.Context, shard keyspace.Shard) (client redisconn.Client, runID string, err error)
	// Raw returns a client for the keys of all shards.
	Raw() redisconn.Client
}

// Config configures a Rebuilder.
type Config struct {
	Pinner Pinner // required
	Store  Store  // required
	Space  keyspace.Space
	// Pause pauses a sale that does not balance; required.
	Pause    func(ctx context.Context, saleID, reason string) error
	Journals JournalWriters // of this process; nil: it keeps none
	// JournalWait bounds the wait for the journals of other backends, while none restores its orders. 0 means 5 s.
	JournalWait time.Duration
	// Changed, if set, is called when a rebuild holds a shard, and when the shard is verified, before Status reports the
	// end of the rebuild.
	Changed func(ctx context.Context, shard keyspace.Shard)
	// Step, if set, is called with the name of each step before it runs. An error ends the rebuild. It is for tests.
	Step func(name string) error
	// Log is slog.Default() if nil.
	Log *slog.Logger
}

// lockDuration is the time that the lock of a crashed rebuild delays the next one. A running rebuild renews the lock.
const lockDuration = 3 * time.Second

// Rebuilder runs rebuilds. It is safe for concurrent use, in any number of processes.
type Rebuilder struct {
	cfg    Config
	latest atomic.Pointer[status] // of the Run that began last; nil before
}

// New returns a Rebuilder.
func New(cfg Config) (*Rebuilder, error) {
	if cfg.Pinner == nil || cfg.Store == nil || cfg.Pause == nil {
		return nil, errors.New("rebuild: Config needs Pinner, Store and Pause")
	}
	cfg.JournalWait = cmp.Or(max(cfg.JournalWait, 0), 5*time.Second)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Changed == nil {
		cfg.Changed = func(context.Context, keyspace.Shard) {}
	}
	if cfg.Step == nil {
		cfg.Step = func(string) error { return nil }
	}
	return &Rebuilder{cfg: cfg}, nil
}

// Run rebuilds these sales, with all their segments; or all sales, if none are given. If a shard is not verified, all
// its sales are rebuilt. The shards are rebuilt one after the other; an error of one does not prevent the others. Run
// returns guard.ErrBusy, *guard.ShardsError, *guard.DeploymentError, or another error that matches
// sale.ErrUnavailable. After an error the shard remains unverified until a rebuild succeeds.
//
// If no sales are given, Run takes over data in Redis that belongs to another deployment. This is for the case that the
// database of that deployment is lost.
func (r *Rebuilder) Run(ctx context.Context, only ...string) error {
	byShard := map[keyspace.Shard][]string{}
	for _, id := range only {
		def, _, err := r.cfg.Store.Sale(ctx, id)
		if err != nil && !errors.Is(err, sale.ErrNotFound) {
			return fmt.Errorf("rebuild: %w", err)
		}
		for segment := range max(def.Spread, 1) {
			shard := r.cfg.Space.ShardOfSegment(id, segment)
			byShard[shard] = append(byShard[shard], id)
		}
	}
	shards := slices.Sorted(maps.Keys(byShard))
	if len(only) == 0 {
		shards = r.cfg.Space.All()
	}
	now := &status{}
	var errs []error
	for _, shard := range shards {
		err := r.run(ctx, shard, now, byShard[shard], nil)
		errs = append(errs, err)
		if _, wrong := errors.AsType[*guard.ShardsError](err); wrong {
			break
		}
	}
	err := errors.Join(errs...)
	now.end(err)
	return err
}

// RunIf rebuilds all sales of a shard if needed returns true. It calls needed when it holds the lock, so it does not
// repeat the rebuild of another process.
func (r *Rebuilder) RunIf(ctx context.Context, shard keyspace.Shard, needed func(context.Context) bool) error {
	now := &status{}
	err := r.run(ctx, shard, now, nil, needed)
	now.end(err)
	return err
}

// run rebuilds these sales of a shard; all, if none are given. needed is that of RunIf. It is nil if an admin has
// requested the rebuild; then a rebuild of all sales takes over the data of another deployment.
func (r *Rebuilder) run(
	ctx context.Context, shard keyspace.Shard, now *status, sales []string, needed func(context.Context) bool,
) error {
	client, runID, err := r.cfg.Pinner.Pin(ctx, shard)
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	defer client.Close()
	owner, from, err := r.dataOwner(ctx, client, shard, needed == nil && len(sales) == 0)
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	lock, err := acquire(ctx, client, shard)
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	ctx, release := lock.KeepRenewed(ctx)
	defer release()
	if needed != nil && !needed(ctx) {
		return nil
	}
	if r.cfg.Journals != nil {
		if err := r.cfg.Journals[shard].Heartbeat(ctx); err != nil { // so that this rebuild waits for it
			return fmt.Errorf("rebuild: %w", err)
		}
	}
	fence, err := NextFence(ctx, r.cfg.Store, shard, client)
	if err != nil {
		return fmt.Errorf("rebuild: %w", err)
	}
	now.begin(fence)
	r.latest.Store(now)
	j := &job{
		Rebuilder: r, Hold: NewHold(client, shard, owner, fence), from: from, runID: runID, only: sales, status: now,
	}
	if err := j.run(ctx); err != nil {
		return fmt.Errorf("rebuild %d: %w", fence, j.explain(ctx, err))
	}
	r.cfg.Changed(ctx, shard)
	return nil
}

// dataOwner returns the owner of the data that a rebuild of a shard writes. If another deployment has the data and
// takesOver is set, from is its id; otherwise the error is that of guard.CheckOwner.
func (r *Rebuilder) dataOwner(
	ctx context.Context, client redisconn.Client, shard keyspace.Shard, takesOver bool,
) (owner guard.Owner, from string, err error) {
	owner.Shards = len(r.cfg.Space.All()) // with another number, sales would be in other shards
	if owner.Deployment, _, err = r.cfg.Store.Generation(ctx, int(shard)); err != nil {
		return owner, "", err
	}
	err = guard.CheckOwner(ctx, client, shard, owner)
	foreign, ok := errors.AsType[*guard.DeploymentError](err)
	if !ok || !takesOver {
		return owner, "", err
	}
	r.cfg.Log.Warn("rebuild: the data of another deployment becomes that of this one", "shard", int(shard),
		"deployment", fmt.Sprintf("%x", foreign.Redis))
	return owner, strconv.FormatInt(foreign.Redis, 10), nil
}

// acquire acquires the lock of the rebuilds and moves of a shard. The caller keeps it renewed.
func acquire(ctx context.Context, client redisconn.Client, shard keyspace.Shard) (*redisconn.Lock, error) {
	lock, err := redisconn.Acquire(ctx, client, shard.RebuildLock(), lockDuration)
	if to, moving := redis.IsAskError(err); moving {
		err = fmt.Errorf("the move of its slot was interrupted; to finish it: sluice shard move %d --to %s: %w",
			shard, to, err)
	}
	switch {
	case err != nil:
		return nil, sale.Unavailable(err)
	case lock == nil:
		return nil, guard.ErrBusy
	}
	return lock, nil
}

// Fences is the part of SQL that numbers the rebuilds and moves of shards (store.Store and journal.Registry).
type Fences interface {
	guard.Generations
	// NextFence allocates a fence that is higher than above.
	NextFence(ctx context.Context, above int64) (int64, error)
	// BeginGeneration rejects writes of workers with batches of an older generation of the shard.
	BeginGeneration(ctx context.Context, shard int, fence int64) error
	Journals(ctx context.Context, shard int) ([]journal.Status, error)
}

// NextFence returns a fence that is higher than all those recorded in SQL, in the heartbeats of the journals and on
// these servers. A database that was restored from a backup may have allocated higher fences before. If a fence were
// reused, Redis would reject the rebuild as an older one or treat its queue as already swapped, and a JournalWriter
// would treat its orders as already restored.
func NextFence(ctx context.Context, sql Fences, shard keyspace.Shard, servers ...redis.Cmdable) (int64, error) {
	newest := int64(0)
	for _, client := range servers {
		fence, err := guard.NewestFence(ctx, client, shard)
		if err != nil {
			return 0, err
		}
		newest = max(newest, fence)
	}
	journals, err := sql.Journals(ctx, int(shard))
	if err != nil {
		return 0, err
	}
	for _, o := range journals {
		newest = max(newest, o.Generation, o.Restoring)
	}
	return sql.NextFence(ctx, newest)
}
