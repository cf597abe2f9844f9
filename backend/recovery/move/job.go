package move

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
)

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
	kept           error    // why the shard is still held after an abandoned move; nil if it was released
	sales          []string // ids
	keys           []string // keys to copy
	result         Result
}

// move moves a shard that is verified on the source.
func (j *job) move(ctx context.Context) error {
	if err := j.check(ctx); err != nil {
		return err
	}
	if j.target.leaves { // MIGRATING is left from an interrupted move from this server, and would hide IMPORTING
		if err := j.setSlot(ctx, j.target.pinned, "STABLE"); err != nil {
			return err
		}
	}
	err := j.moveLocked(ctx)
	if err != nil && !j.changing {
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
	targetLock, err := j.acquire(ctx, j.target.importing)
	if err != nil {
		return err
	}
	moved, releaseTarget := targetLock.KeepRenewed(ctx)
	defer releaseTarget()
	sourceLock, err := j.acquire(moved, j.source.pinned)
	if err != nil {
		return err
	}
	held, releaseSource := sourceLock.KeepRenewed(moved)
	defer releaseSource()
	j.fence, err = rebuild.NextFence(held, j.cfg.Store, j.shard, j.source.pinned, j.target.importing)
	if err != nil {
		return err
	}
	began := time.Now()
	// The end of ctx or the loss of a lock interrupts only the copy. If it interrupted the hold or the change of the
	// owner, the shard would have to wait for a rebuild or another move. The scripts of these steps check the fence.
	steady := context.WithoutCancel(ctx)
	if err := j.beginGeneration(steady); err != nil {
		return err
	}
	if err = j.hold(steady); err == nil {
		err = j.transfer(held)
	}
	if err != nil {
		return j.abandon(ctx, err)
	}
	if err := j.changeOwner(steady); err != nil {
		return err
	}
	j.cfg.Progress("release", 0, 0)
	if err := j.release(steady, j.target.importing, j.target.runID); err != nil {
		return fmt.Errorf("%s has the slot, and a backend rebuilds the shard there: %w", j.target.addr, err)
	}
	j.result.Held, j.result.Verified = time.Since(began), true
	j.cfg.Log.Info("shard moved", "shard", int(j.shard), "from", j.source.addr, "to", j.target.addr,
		"keys", j.result.Keys, "held", j.result.Held, "generation", j.fence)
	j.settle(steady)
	return nil
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
		return sale.Unavailable(err)
	case !guard.SameData(verified.RunID, j.source.runID), verified.Generation != current:
		return fmt.Errorf("%w: wait until a backend has rebuilt it (sluice shard list)", guard.ErrUnverified)
	}
	_, err = j.list(ctx, j.source.pinned, j.copied)
	return err
}

// checkOwner verifies that the data on a server is that of this deployment, and returns the generation in SQL.
func (j *job) checkOwner(ctx context.Context, c redisconn.Client) (generation int64, err error) {
	deployment, generation, err := j.cfg.Store.Generation(ctx, int(j.shard))
	if err != nil {
		return 0, err
	}
	j.owner = guard.Owner{Deployment: deployment, Shards: len(j.cfg.Space.All())}
	return generation, guard.CheckOwner(ctx, c, j.shard, j.owner)
}

// acquire acquires the lock of the shard on a server. The caller keeps it renewed.
func (j *job) acquire(ctx context.Context, c redisconn.Client) (*redisconn.Lock, error) {
	lock, err := redisconn.Acquire(ctx, c, j.shard.RebuildLock(), j.lock)
	if _, moved := redis.IsMovedError(err); moved || err == nil && lock == nil { // another move has ended its import
		return nil, guard.ErrBusy
	}
	if err != nil {
		return nil, sale.Unavailable(err)
	}
	return lock, nil
}

// setSlot runs CLUSTER SETSLOT for the slot of the shard.
func (j *job) setSlot(ctx context.Context, c redisconn.Client, args ...any) error {
	if err := c.Do(ctx, append([]any{"CLUSTER", "SETSLOT", j.slot}, args...)...).Err(); err != nil {
		return sale.Unavailable(err)
	}
	return nil
}

// call runs a script of the move with its fence.
func (j *job) call(ctx context.Context, c redisconn.Client, script string, keys []string, args ...any) error {
	result, err := redisscript.Run(ctx, c, script, keys, append([]any{j.fence}, args...)...).Text()
	return guard.ScriptError(script, result, err)
}
