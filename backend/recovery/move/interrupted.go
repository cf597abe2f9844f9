package move

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"sluice/backend/recovery/guard"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
)

// finish finishes a move that was interrupted while the owner changed, or one of redis-cli. The keys may have changed
// since, so a rebuild follows.
func (j *job) finish(ctx context.Context) error {
	if err := j.step("finish", 0, 0); err != nil {
		return err
	}
	has := j.source.pinned
	if j.target.owns {
		has = j.target.importing
	}
	_, err := j.checkOwner(ctx, has)
	if _, moved := redis.IsAskError(err); moved { // by redis-cli
		_, err = j.checkOwner(ctx, j.target.importing)
	}
	if err != nil {
		return err
	}
	if !j.target.owns { // a node that does not import the slot makes no newer claim to it, and has no lock of it
		if err := j.setSlot(ctx, j.target.pinned, "IMPORTING", j.source.id); err != nil {
			return err
		}
	}
	lock, err := j.acquire(ctx, j.target.importing)
	if err != nil {
		return err
	}
	ctx, release := lock.KeepRenewed(ctx)
	defer release()
	if !j.target.owns {
		if err := j.checkInterrupted(ctx); err != nil {
			return err
		}
		lasting := func(key string) bool { return !keyspace.Temporary(key) }
		if j.keys, err = j.list(ctx, j.source.pinned, lasting); err != nil {
			return err
		}
		if err := j.copy(ctx); err != nil {
			return err
		}
	}
	if err := j.step("flip", 0, 0); err != nil {
		return err
	}
	if err := j.takeSlot(ctx, lock); err != nil {
		return err
	}
	j.settle(ctx)
	return nil
}

// takeSlot makes the target the owner of the slot, unless the lock is lost.
func (j *job) takeSlot(ctx context.Context, lock *redisconn.Lock) error {
	keys := []string{j.shard.RebuildLock()}
	result, err := redisscript.Run(ctx, j.target.importing, "move_finish", keys, lock.Token(), j.slot, j.target.id).Text()
	if _, moved := redis.IsMovedError(err); moved { // the target imports the slot no longer
		return guard.ErrFenced
	}
	return guard.ScriptError("move_finish", result, err)
}

// checkInterrupted verifies that the move has not been finished by another process meanwhile. The data on the source
// would be in use.
func (j *job) checkInterrupted(ctx context.Context) error {
	nodes, err := redisconn.Nodes(ctx, j.source.pinned, j.source.addr)
	if err != nil {
		return sale.Unavailable(err)
	}
	self := find(nodes, func(n *redisconn.Node) bool { return n.Self })
	if self == nil || !self.Owns(j.slot) || self.Migrating[j.slot] != j.interrupted {
		_ = j.setSlot(ctx, j.target.pinned, "STABLE")
		return errors.New("another process has finished the interrupted move: try again")
	}
	return nil
}
