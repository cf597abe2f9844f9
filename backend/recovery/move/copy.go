package move

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/backend/recovery/guard"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
)

// list returns the keys of the slot on a server for which want returns true. It fails if the slot has keys that do not
// belong to the shard.
func (j *job) list(ctx context.Context, c redisconn.Client, want func(key string) bool) ([]string, error) {
	n, err := c.ClusterCountKeysInSlot(ctx, j.slot).Result()
	if err != nil {
		return nil, sale.Unavailable(err)
	}
	keys, err := c.ClusterGetKeysInSlot(ctx, j.slot, int(n)+pipelineSize).Result() // some may be added meanwhile
	if err != nil {
		return nil, sale.Unavailable(err)
	}
	for _, key := range keys {
		if shard, ok := keyspace.ShardOfKey(key); !ok || shard != j.shard {
			return nil, fmt.Errorf("slot %d also has the key %s, which is not of the shard: "+
				"move the slot with redis-cli --cluster reshard; a rebuild follows", j.slot, key)
		}
	}
	return slices.DeleteFunc(keys, func(key string) bool { return !want(key) }), nil
}

// transfer copies all keys to the target and compares both servers. The source does not change.
func (j *job) transfer(ctx context.Context) error {
	if err := j.clear(ctx, "clear"); err != nil {
		return err
	}
	if err := j.clearCall(ctx, "copy"); err != nil {
		return err
	}
	keys, err := j.list(ctx, j.source.pinned, j.copied)
	if err != nil {
		return err
	}
	j.keys = keys
	conn := redisconn.Connect(j.source.pinned)
	defer conn.Close()
	if err := j.copy(ctx, conn); err != nil {
		return err
	}
	j.cfg.Progress("verify", 0, 0)
	if err := j.verify(ctx); err != nil {
		return err
	}
	return j.awaitReplicas(ctx)
}

// copied reports whether a move copies a key. It does not copy the guard, because that of the target has the fence of
// the move.
func (j *job) copied(key string) bool {
	return !keyspace.Temporary(key) && key != j.shard.Guard() && key != j.shard.Replicated()
}

// clear stores the fence of the move on the target, and deletes the keys that this or an earlier move left there. The
// target has no other keys of the slot, because the source owns the slot and was verified. step is the step of the
// script.
func (j *job) clear(ctx context.Context, step string) error {
	if err := j.clearCall(ctx, step); err != nil {
		return err
	}
	for {
		left, err := j.list(ctx, j.target.pinned, func(key string) bool {
			return key != j.shard.Guard() && !keyspace.Temporary(key)
		})
		if err != nil || len(left) == 0 {
			return err
		}
		for part := range slices.Chunk(left, pipelineSize) {
			if err := j.clearCall(ctx, step, part...); err != nil && !redis.IsTryAgainError(err) { // a key has expired meanwhile
				return err
			}
		}
	}
}

// clearCall runs a step of move_clear.
func (j *job) clearCall(ctx context.Context, step string, keys ...string) error {
	keys = append([]string{j.shard.Guard()}, keys...)
	return j.call(ctx, j.target.importing, "move_clear", keys, j.owner.Deployment, step)
}

// copy sends the keys to the target by a connection of the source, and keeps them on the source. A key that exists on
// the target is an error, unless the job finishes an interrupted move.
func (j *job) copy(ctx context.Context, conn redisconn.Connection) error {
	host, port, err := net.SplitHostPort(j.target.addr)
	if err != nil {
		return err
	}
	command := []any{"MIGRATE", host, port, "", 0, migrateTimeout.Milliseconds(), "COPY"}
	switch user, password := j.cfg.Server.Credentials(); {
	case user != "":
		command = append(command, "AUTH2", user, password)
	case password != "":
		command = append(command, "AUTH", password)
	}
	command = append(command, "KEYS")
	for at := 0; at < len(j.keys); at += copyChunk {
		j.cfg.Progress("copy", at, len(j.keys))
		args := command[:len(command):len(command)]
		for _, key := range j.keys[at:min(at+copyChunk, len(j.keys))] {
			args = append(args, key)
		}
		err := j.migrate(ctx, conn, args)
		if errors.Is(err, guard.ErrFenced) {
			return err
		}
		if err != nil && strings.HasPrefix(err.Error(), "IOERR") {
			return fmt.Errorf("copy to %s: it cannot be reached, or needs longer than %v for a key "+
				"(move a shard with millions of buyers before or after the sale): %w",
				j.target.addr, migrateTimeout, sale.Unavailable(err))
		}
		if err != nil && (j.interrupted == "" || !strings.Contains(err.Error(), "BUSYKEY")) {
			return fmt.Errorf("copy to %s: %w", j.target.addr, sale.Unavailable(err))
		}
	}
	j.result.Keys = len(j.keys)
	return nil
}

// migrate runs MIGRATE on the source, in a transaction that Redis aborts if the guard of the shard has changed: a
// process that was suspended must not copy keys to a target that another move has made the owner. A job that finishes
// an interrupted move runs MIGRATE without a transaction, because the guard may be on the target; see claimSource.
func (j *job) migrate(ctx context.Context, conn redisconn.Connection, command []any) error {
	if j.interrupted != "" {
		return conn.Do(ctx, command...).Err() // NOKEY, which is no error, if all keys have expired
	}
	var mark *redis.SliceCmd
	_, err := conn.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Do(ctx, "WATCH", j.shard.Guard())
		mark = p.HMGet(ctx, j.shard.Guard(), "fence", "rebuilding")
		return nil
	})
	if err != nil {
		return err
	}
	fence := strconv.FormatInt(j.fence, 10)
	if !slices.Equal(mark.Val(), []any{fence, fence}) {
		return guard.ErrFenced
	}
	var sent *redis.Cmd
	_, err = conn.TxPipelined(ctx, func(p redis.Pipeliner) error { sent = p.Do(ctx, command...); return nil })
	switch {
	case errors.Is(err, redis.TxFailedErr):
		return guard.ErrFenced
	case redis.HasErrorPrefix(err, "EXECABORT"):
		return sent.Err() // why Redis has not queued it, such as MOVED
	}
	return err
}

// awaitReplicas waits until the replicas of the target have the copy.
func (j *job) awaitReplicas(ctx context.Context) error {
	info := j.target.pinned.InfoMap(ctx, "replication")
	if err := info.Err(); err != nil {
		return sale.Unavailable(err)
	}
	n, err := strconv.Atoi(info.Item("Replication", "connected_slaves"))
	if err != nil || n == 0 {
		return err
	}
	conn := redisconn.Connect(j.target.pinned)
	defer conn.Close()
	// WAIT covers the writes of its connection. This one follows the copy.
	if err := conn.Do(ctx, "ASKING").Err(); err != nil {
		return sale.Unavailable(err)
	}
	if err := conn.Set(ctx, j.shard.Replicated(), "1", 0).Err(); err != nil {
		return sale.Unavailable(err)
	}
	have, err := conn.Wait(ctx, n, replicaTimeout).Result()
	if err != nil {
		return sale.Unavailable(err)
	}
	if have < int64(n) {
		return fmt.Errorf("%d of %d replicas of %s have the copy after %v: repair its replication",
			have, n, j.target.addr, replicaTimeout)
	}
	return nil
}
