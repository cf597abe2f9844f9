// Package move moves one shard of a Redis Cluster to another master without a rebuild.
//
// A move holds the shard as a rebuild does, copies its keys, compares both servers, changes the owner of the slot, and
// marks the data on the new server as verified. The source keeps all data until the owner changes, so a move that stops
// before that leaves the shard as an interrupted rebuild does, on the source; one that stops later, on the target. In
// both cases a backend rebuilds the shard. Only if a move stops in the milliseconds in which the owner changes, the
// next Move to the same master, or to the one that has replaced it, must finish it.
//
// The scripts on both servers check the fence of the move, so a process that was suspended past its lock changes
// nothing.
package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/internal/loop"
	redisscript "sluice/lua/redis"
)

// Store is the part of SQL that a move needs (store.Store and journal.Registry).
type Store interface {
	rebuild.Fences
	guard.Generations
	// BeginGeneration rejects writes of workers with batches of an older generation of the shard.
	BeginGeneration(ctx context.Context, shard int, fence int64) error
}

// Config configures a Mover.
type Config struct {
	Server *redisconn.Server // the cluster; required
	Store  Store             // required
	Space  keyspace.Space
	// Progress, if set, is called when a step begins, and during the copy with the number of keys.
	Progress func(step string, done, total int)
	// Step, if set, is called before each step, and before each part of the copy. After an error the move does nothing
	// more, as if the process had ended. It is for tests.
	Step func(name string) error
	// Log is slog.Default() if nil.
	Log *slog.Logger
}

// Result describes a move.
type Result struct {
	Shard    keyspace.Shard
	From, To string        // addresses of the masters; equal if the shard was on the target before
	Keys     int           // keys copied
	Held     time.Duration // time for which the shard sold nothing
	// Verified reports that the shard sells on the target. Otherwise the move finished an interrupted one, and a backend
	// rebuilds the shard.
	Verified bool
}

const (
	// lockDuration is the time that the lock of a crashed move delays the rebuild. A running move renews the lock.
	lockDuration = 5 * time.Second
	// migrateTimeout bounds the time for which the source waits for the target. All its shards wait meanwhile, and other
	// nodes suspect it after cluster-node-timeout.
	migrateTimeout = 1500 * time.Millisecond
	// copyChunk is the number of keys that the source sends together.
	copyChunk = 50
	// pipelineSize is the number of commands, and of keys of a script, per round trip.
	pipelineSize = 1000
	// replicaTimeout bounds the wait for the replicas of the target.
	replicaTimeout = 5 * time.Second
	// settleTimeout bounds the wait until the source has deleted its copy.
	settleTimeout = 10 * time.Second
	// abandonTimeout bounds the attempt to release the shard on the source.
	abandonTimeout = 5 * time.Second
)

// Mover moves shards. It is safe for concurrent use.
type Mover struct {
	cfg  Config
	lock time.Duration // lockDuration; longer in tests
}

// New returns a Mover.
func New(cfg Config) (*Mover, error) {
	if cfg.Server == nil || cfg.Store == nil {
		return nil, errors.New("move: Config needs Server and Store")
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Progress == nil {
		cfg.Progress = func(string, int, int) {}
	}
	if cfg.Step == nil {
		cfg.Step = func(string) error { return nil }
	}
	return &Mover{cfg, lockDuration}, nil
}

// ErrBusy reports that another process rebuilds or moves the shard.
var ErrBusy = errors.New("a rebuild or another move of the shard is in progress: try again when it has ended")

// ErrInterrupted reports that the context of Move ended.
var ErrInterrupted = errors.New("the move was interrupted")

// errUnverified reports that a rebuild must come first.
var errUnverified = errors.New("its data is not verified: wait until a backend has rebuilt it (sluice shard list)")

// errFenced reports that the shard is not held by this move any longer.
var errFenced = errors.New("the move lost its lock, and a rebuild or another move has begun")

// errStopped is the error after Config.Step has returned one.
type errStopped struct{ error }

func (e errStopped) Unwrap() error { return e.error }

// Move moves a shard to the master with the address to, or finishes such a move that was interrupted. If the shard is
// there already, it changes nothing. If it returns an error, the shard continues on the old master, or a backend
// rebuilds it, unless the error has another remedy. If ctx ends before the copy is complete, the move is abandoned;
// later, it ends as usual.
func (m *Mover) Move(ctx context.Context, shard keyspace.Shard, to string) (Result, error) {
	j := &job{Mover: m, shard: shard, result: Result{Shard: shard, To: to}}
	defer j.close()
	if err := j.connect(ctx, to); err != nil {
		return j.result, j.failure(ctx, err)
	}
	if j.source.id == j.target.id {
		j.result.Verified = true
		return j.result, nil
	}
	run := j.move
	if j.interrupted != "" {
		run = j.finish
	}
	if err := run(ctx); err != nil {
		return j.result, j.failure(ctx, err)
	}
	return j.result, nil
}

// failure returns the error of Move for one of its parts. If ctx has ended, the error has the state of the shard and
// the remedy. After the hold only the copy depends on ctx, and abandon ends it.
func (j *job) failure(ctx context.Context, err error) error {
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		return fmt.Errorf("move shard %d: %w", j.shard, err)
	}
	state := "nothing has changed"
	switch {
	case j.interrupted != "":
		state = "an earlier move of the shard is incomplete"
	case j.kept != nil:
		state = fmt.Sprintf("a backend rebuilds the shard on %s (%v)", j.source.addr, j.kept)
	case j.source.id != j.target.id:
		state = "the shard continues on " + j.source.addr
	}
	return fmt.Errorf("move shard %d: %w, and %s; run it again: sluice shard move %d --to %s",
		j.shard, ErrInterrupted, state, j.shard, j.result.To)
}

// job is a move in progress.
type job struct {
	*Mover
	shard          keyspace.Shard
	slot           int
	owner          guard.Owner // of the shard
	source, target server
	interrupted    string // the node of an earlier move that was interrupted while the owner changed; empty: none
	fence          int64
	held           bool     // by this move, on the source
	changing       bool     // the owner of the slot may have changed
	kept           error    // of the release of an abandoned move: the shard is still held
	sales          []string // keys of the sales
	defs           []any    // version and switch of each
	keys           []string // keys to copy
	result         Result
}

// step announces a step, or a part of one.
func (j *job) step(name string, done, total int) error {
	if err := j.cfg.Step(name); err != nil {
		return errStopped{err}
	}
	j.cfg.Progress(name, done, total)
	return nil
}

// move moves a shard that is verified on the source.
func (j *job) move(ctx context.Context) error {
	if err := j.check(ctx); err != nil {
		return err
	}
	if j.target.leaves { // it was the source of a move that was interrupted; this would hide IMPORTING
		if err := j.setSlot(ctx, j.target.pinned, "STABLE"); err != nil {
			return err
		}
	}
	err := j.moveLocked(ctx)
	if _, stopped := errors.AsType[errStopped](err); err != nil && !stopped && !j.changing {
		j.withdraw(ctx)
	}
	return err
}

// moveLocked is the part of move with the locks on both servers.
func (j *job) moveLocked(ctx context.Context) error {
	if err := j.setSlot(ctx, j.target.pinned, "IMPORTING", j.source.id); err != nil {
		return err
	}
	// The lock on the target prevents a rebuild when the owner has changed. From then on the one on the source is not
	// needed.
	moved, releaseTarget, err := j.acquire(ctx, j.target.importing)
	if err != nil {
		return err
	}
	defer releaseTarget()
	held, releaseSource, err := j.acquire(moved, j.source.pinned)
	if err != nil {
		return err
	}
	defer releaseSource()
	if j.fence, err = rebuild.NextFence(held, j.cfg.Store, j.source.pinned, j.shard); err != nil {
		return err
	}
	began := time.Now()
	// The end of ctx or the loss of a lock ends the copy only. In the middle of the hold or of the change of the owner,
	// the shard would wait for a rebuild, or for another move. Their scripts check the fence.
	steady := context.WithoutCancel(ctx)
	if err := j.hold(steady); err != nil {
		return err
	}
	if err := j.transfer(held); err != nil {
		return j.abandon(ctx, err)
	}
	if err := j.changeOwner(steady); err != nil {
		return err
	}
	if err := j.step("release", 0, 0); err != nil {
		return err
	}
	if err := j.release(steady, j.target.importing, j.target.runID); err != nil {
		return fmt.Errorf("%s has the slot, and a backend rebuilds the shard there: %w", j.target.addr, err)
	}
	j.result.Held, j.result.Verified = time.Since(began), true
	j.cfg.Log.Info("shard moved", "shard", int(j.shard), "from", j.source.addr, "to", j.target.addr,
		"keys", j.result.Keys, "held", j.result.Held, "generation", j.fence)
	j.settle(steady)
	return nil
}

// checkOwner verifies that the data on a server is that of this deployment, and returns the generation in SQL.
func (j *job) checkOwner(ctx context.Context, c *redis.Client) (generation int64, err error) {
	deployment, generation, err := j.cfg.Store.Generation(ctx, int(j.shard))
	if err != nil {
		return 0, err
	}
	j.owner = guard.Owner{Deployment: deployment, Shards: len(j.cfg.Space.All())}
	return generation, guard.CheckOwner(ctx, c, j.shard, j.owner)
}

// check verifies what can be verified before the hold.
func (j *job) check(ctx context.Context) error {
	current, err := j.checkOwner(ctx, j.source.pinned)
	if err != nil {
		return err
	}
	var verified struct {
		RunID      string `redis:"run_id"`
		Generation int64  `redis:"generation"`
	}
	err = j.source.pinned.HMGet(ctx, j.shard.Guard(), "run_id", "generation").Scan(&verified)
	switch {
	case err != nil:
		return unavailable(err)
	case verified.RunID != j.source.runID, verified.Generation != current:
		return errUnverified
	}
	_, err = j.list(ctx, j.source.pinned)
	return err
}

// acquire acquires the lock of the shard on a server, and renews it until held ends or release is called.
func (j *job) acquire(ctx context.Context, c *redis.Client) (held context.Context, release func(), err error) {
	lock, err := redisconn.Acquire(ctx, c, j.shard.RebuildLock(), j.lock)
	if _, moved := redis.IsMovedError(err); moved || err == nil && lock == nil { // another move has ended its import
		return nil, nil, ErrBusy
	}
	if err != nil {
		return nil, nil, unavailable(err)
	}
	held, release = lock.KeepRenewed(ctx)
	return held, release, nil
}

// hold begins a new generation in SQL and stops the shard on the source. The shard is not held while SQL is called, and
// nothing after the hold needs SQL. If hold returns an error, the shard may be held or of an older generation than in
// SQL, and a backend rebuilds it then.
func (j *job) hold(ctx context.Context) error {
	if err := j.step("hold", 0, 0); err != nil {
		return err
	}
	if err := j.cfg.Store.BeginGeneration(ctx, int(j.shard), j.fence); err != nil {
		return fmt.Errorf("the shard is not held, because the database has not confirmed a new generation: %w", err)
	}
	for {
		ids, err := j.source.pinned.SMembers(ctx, j.shard.Sales()).Result()
		if err != nil {
			return unavailable(err)
		}
		j.sales = nil
		args := []any{j.fence, j.source.runID, j.owner.Deployment}
		for _, id := range ids {
			j.sales, args = append(j.sales, j.shard.Sale(id)), append(args, id)
		}
		keys := append([]string{j.shard.Guard(), j.shard.Sales()}, j.sales...)
		answer, err := redisscript.Run(ctx, j.source.pinned, "move_hold", keys, args...).Slice()
		if err != nil {
			return unavailable(err)
		}
		switch answer[0] {
		case "ok":
			j.held, j.defs = true, answer[1:]
			return nil
		case "stale": // a sale was loaded or removed meanwhile
		case "unverified":
			return errUnverified
		case "foreign":
			return cmp.Or(guard.CheckOwner(ctx, j.source.pinned, j.shard, j.owner), errUnverified)
		default:
			return ErrBusy
		}
	}
}

// changeOwner makes the target the owner of the slot. Before that, MIGRATING prevents a rebuild on the source: scripts
// with a key that does not exist fail there. So two servers with a copy never both sell.
func (j *job) changeOwner(ctx context.Context) error {
	if err := j.step("mark", 0, 0); err != nil {
		return err
	}
	moveSlot := func(c *redis.Client, to string) error {
		return j.call(ctx, c, "move_slot", []string{j.shard.Guard()}, j.slot, to, j.target.id, j.owner.Deployment)
	}
	j.changing = true
	if err := moveSlot(j.source.pinned, "MIGRATING"); err != nil {
		if _, rejected := errors.AsType[redis.Error](err); rejected || errors.Is(err, errFenced) {
			j.changing = false
			return j.abandon(ctx, err)
		}
		return j.unfinished(err)
	}
	if err := j.step("flip", 0, 0); err != nil {
		return err
	}
	if err := moveSlot(j.target.importing, "NODE"); err != nil {
		return j.unfinished(err)
	}
	return nil
}

// unfinished is an error after which the owner of the slot may have changed.
func (j *job) unfinished(err error) error {
	return fmt.Errorf("the move may be incomplete; to finish it, run again: sluice shard move %d --to %s: %w",
		j.shard, j.target.addr, err)
}

// abandon releases the shard on the source, where nothing has changed since the hold, and returns the error of the
// move. If that fails, a backend rebuilds the shard.
func (j *job) abandon(ctx context.Context, err error) error {
	if _, stopped := errors.AsType[errStopped](err); stopped {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	if failed := j.release(ctx, j.source.pinned, j.source.runID); failed != nil {
		j.kept = failed
		return fmt.Errorf("%w; a backend rebuilds the shard on %s (%w)", err, j.source.addr, failed)
	}
	return fmt.Errorf("%w; the shard continues on %s", err, j.source.addr)
}

// withdraw deletes the copy on the target and ends the import of the slot, unless another move to it has begun. The
// next move deletes keys that withdraw could not delete.
func (j *job) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	if j.held {
		if err := j.clear(ctx); err != nil {
			return
		}
		guards := []string{j.shard.Guard()}
		if err := j.call(ctx, j.target.importing, "move_clear", guards, j.owner.Deployment, "withdraw"); err != nil {
			return
		}
	}
	lock := []string{j.shard.RebuildLock()}
	_ = redisscript.Run(ctx, j.target.importing, "move_withdraw", lock, j.slot, j.source.id).Err()
}

// release marks the data of a server as verified and resumes its sales.
func (j *job) release(ctx context.Context, c *redis.Client, runID string) error {
	// Backends may have leased order numbers from the source since they were copied.
	if err := admission.NewSequencer(c, j.cfg.Space, nil).StartGeneration(ctx, j.shard, j.fence); err != nil {
		return err
	}
	keys := append([]string{j.shard.Guard()}, j.sales...)
	args := append([]any{runID, j.owner.Deployment, j.owner.Shards}, j.defs...)
	return j.call(ctx, c, "move_release", keys, args...)
}

// settle waits until the source has received the new owner and deleted its copy. The shard is held there, so until
// then it sells nothing.
func (j *job) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	for {
		err := j.setSlot(ctx, j.source.pinned, "NODE", j.target.id) // fails while the source has keys of the slot
		if err == nil {
			return
		}
		if loop.Sleep(ctx, 20*time.Millisecond); ctx.Err() != nil {
			j.cfg.Log.Warn("the old master has not released the slot: redis-cli --cluster check shows its state",
				"master", j.source.addr, "slot", j.slot, "err", err)
			return
		}
	}
}

// setSlot runs CLUSTER SETSLOT for the slot of the shard.
func (j *job) setSlot(ctx context.Context, c *redis.Client, args ...any) error {
	if err := c.Do(ctx, append([]any{"CLUSTER", "SETSLOT", j.slot}, args...)...).Err(); err != nil {
		return unavailable(err)
	}
	return nil
}

// call runs a script of the move with its fence.
func (j *job) call(ctx context.Context, c *redis.Client, script string, keys []string, args ...any) error {
	result, err := redisscript.Run(ctx, c, script, keys, append([]any{j.fence}, args...)...).Text()
	switch {
	case err != nil:
		return unavailable(err)
	case result == "fenced":
		return errFenced
	case result != "ok":
		return fmt.Errorf("script %s returned %q", script, result)
	}
	return nil
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", sale.ErrUnavailable, err) }
