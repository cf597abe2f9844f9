package assemble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/recovery/guard"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/store"
	"sluice/backend/web/httpserver"
	"sluice/internal/loop"
)

// shardWait is how long pingRedis waits for the other shards when one has responded.
const shardWait = 250 * time.Millisecond

// pingRedis returns nil if every shard is available, verified and writable. If only some shards are, it returns an
// *httpserver.Degraded with the other shards, because a backend that can sell from some shards stays in use.
func (s *Stores) pingRedis(ctx context.Context) error {
	type result struct {
		shard keyspace.Shard
		err   error
	}
	shards := s.space.All()
	results := make(chan result, len(shards))
	unavailable := make([]int, len(shards))
	for i, shard := range shards {
		unavailable[i] = int(shard)
		go func() { results <- result{shard, s.pingShard(ctx, shard)} }()
	}
	var failed []error
	var enough <-chan time.Time // nil until a shard has responded
	for range shards {
		select {
		case r := <-results:
			if r.err != nil {
				failed = append(failed, r.err)
				continue
			}
			unavailable = slices.DeleteFunc(unavailable, func(shard int) bool { return shard == int(r.shard) })
			if enough == nil {
				wait := shardWait
				if end, bounded := ctx.Deadline(); bounded { // return before the deadline, with the results so far
					wait = min(wait, time.Until(end)/2)
				}
				enough = time.After(wait)
			}
		case <-enough:
			return &httpserver.Degraded{Shards: unavailable}
		}
	}
	switch len(unavailable) {
	case 0:
		return nil
	case len(shards):
		return fmt.Errorf("redis: %w", errors.Join(failed...))
	}
	return &httpserver.Degraded{Shards: unavailable}
}

func (s *Stores) pingShard(ctx context.Context, shard keyspace.Shard) error {
	client := s.guards.Of(shard).Client()
	if s.alone { // the embedded Redis rejects no write, and SETRANGE would create the key
		return client.Ping(ctx).Err()
	}
	return redisconn.Writable(ctx, client, shard.RebuildLock())
}

// shardStatus returns the state of each shard, by number. The Reason of a verified shard is why its Redis rejects
// writes.
func (s *Stores) shardStatus(ctx context.Context) []guard.Status {
	all := s.guards.Status(ctx, s.tables)
	_ = loop.Each(all, -1, func(i int, now guard.Status) error {
		if now.Verified {
			if err := s.pingShard(ctx, now.Shard); err != nil {
				all[i].Reason = cmp.Or(shardDetail(err), err.Error())
			}
		}
		return nil
	})
	return all
}

// redisDetail describes an error of pingRedis, with the state of every shard; "" if all are down.
func redisDetail(err error) string {
	shards, failed := errors.AsType[interface { // of errors.Join
		error
		Unwrap() []error
	}](err)
	if !failed {
		return ""
	}
	var states []string
	for _, err := range shards.Unwrap() {
		states = append(states, cmp.Or(shardDetail(err), "down"))
	}
	slices.Sort(states)
	states = slices.Compact(states)
	if slices.Equal(states, []string{"down"}) {
		return ""
	}
	return strings.Join(states, "; ")
}

// shardDetail describes an error of pingShard; "" if it is not one of these.
func shardDetail(err error) string {
	switch {
	case errors.Is(err, guard.ErrUnverified):
		return "not verified (sluice shard list has the reason)"
	case redis.IsReadOnlyError(err):
		return "read-only (it is a replica; the URL must lead to the master)"
	case redis.IsOOMError(err):
		return "its memory is full (raise maxmemory)"
	case redis.IsNoReplicasError(err):
		return "too few replicas (min-replicas-to-write)"
	case redis.HasErrorPrefix(err, "MISCONF"):
		return "it cannot save (its log names the reason, such as a full disk)"
	case redis.IsAuthError(err):
		return "it rejects the user or the password (correct SLUICE_REDIS_URL)"
	case redis.HasErrorPrefix(err, "NOPERM"):
		return "its user lacks a permission (the log names the command)"
	}
	return ""
}

func databaseDetail(err error) string {
	switch {
	case errors.Is(err, store.ErrReadOnly):
		return "read-only (the URL must lead to the primary)"
	case errors.Is(err, store.ErrFull):
		return "its disk is full (free space)"
	}
	return ""
}
