package move

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

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
	j.cfg.Progress("finish", 0, 0)
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
	// A node that does not import the slot could not store the lock, and would not take the slot with a newer epoch.
	if !j.target.owns {
		if err := j.setSlot(ctx, j.target.pinned, "IMPORTING", j.source.id); err != nil {
			return err
		}
	}
	conn := redisconn.Connect(j.source.pinned)
	defer conn.Close()
	name := fmt.Sprint("sluice-move-", j.slot)
	if err := conn.Do(ctx, "CLIENT", "SETNAME", name).Err(); err != nil {
		return sale.Unavailable(err)
	}
	lock, err := j.acquire(ctx, j.target.importing)
	if err != nil {
		return err
	}
	ctx, release := lock.KeepRenewed(ctx)
	defer release()
	if !j.target.owns {
		if err := j.claimSource(ctx, conn, name); err != nil {
			return err
		}
		lasting := func(key string) bool { return !keyspace.Temporary(key) }
		if j.keys, err = j.list(ctx, j.source.pinned, lasting); err != nil {
			return err
		}
		if err := j.copy(ctx, conn); err != nil {
			return err
		}
	}
	j.cfg.Progress("flip", 0, 0)
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

// claimSource closes the connections with which other processes finish a move of the slot. A process names its
// connection before it acquires the lock. A process that was suspended past its lock can therefore copy nothing: the
// next owner of the lock has closed its connection before the target owns the slot. Then claimSource verifies that no
// other process has finished this move, because the data on the target would be in use.
func (j *job) claimSource(ctx context.Context, conn redisconn.Connection, name string) error {
	self, err := conn.ClientID(ctx).Result()
	if err != nil {
		return sale.Unavailable(err)
	}
	all, err := j.source.pinned.ClientList(ctx).Result()
	if err != nil {
		return sale.Unavailable(err)
	}
	for line := range strings.Lines(all) {
		id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		if !strings.Contains(line, " name="+name+" ") || id == strconv.FormatInt(self, 10) {
			continue
		}
		if err := j.source.pinned.ClientKillByFilter(ctx, "ID", id).Err(); err != nil {
			return sale.Unavailable(err)
		}
	}
	source, _, err := j.source.describe(ctx)
	if err != nil {
		return err
	}
	target, _, err := j.target.describe(ctx)
	if err != nil {
		return err
	}
	if !source.Owns(j.slot) || source.Migrating[j.slot] != j.interrupted || target.Owns(j.slot) {
		if !target.Owns(j.slot) { // else the slot may be about to leave it
			_ = j.setSlot(ctx, j.target.pinned, "STABLE")
		}
		return errors.New("another process has finished the interrupted move: try again")
	}
	return nil
}
