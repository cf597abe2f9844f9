package move

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
)

// verify compares the copy with the source: every key that has not expired exists on both, no other one exists on the
// target, and each key that does not expire has the same number of elements. Strings, which hold the units left, are
// equal.
func (j *job) verify(ctx context.Context) error {
	have, err := j.list(ctx, j.target.pinned, j.copied)
	if err != nil {
		return err
	}
	slices.Sort(have)
	slices.Sort(j.keys)
	for _, key := range have {
		if _, copied := slices.BinarySearch(j.keys, key); !copied {
			return fmt.Errorf("%s has the key %s, which was not copied", j.target.addr, key)
		}
	}
	var compared, absent []string
	for _, key := range j.keys {
		if _, found := slices.BinarySearch(have, key); !found {
			absent = append(absent, key)
		}
		// Workers that were blocked when the hold began can take the token, and backends can lease order numbers.
		if !keyspace.Volatile(key) && key != j.shard.Wake() && key != j.shard.OrderNumbers() {
			compared = append(compared, key)
		}
	}
	lost, err := sizes(ctx, j.source.pinned, absent)
	if err != nil {
		return err
	}
	for _, key := range absent {
		if lost[key] != "" && key != j.shard.Wake() {
			return fmt.Errorf("%s has no copy of the key %s", j.target.addr, key)
		}
	}
	want, err := sizes(ctx, j.source.pinned, compared)
	if err != nil {
		return err
	}
	got, err := sizes(ctx, j.target.importing, compared)
	if err != nil {
		return err
	}
	for _, key := range compared {
		if want[key] != got[key] {
			return fmt.Errorf("key %s is a %s on %s and a %s on %s", key, want[key], j.source.addr, got[key], j.target.addr)
		}
	}
	return nil
}

// sizes returns the type of each key that exists with its number of elements, or with its value if it is a string.
func sizes(ctx context.Context, c redisconn.Client, keys []string) (map[string]string, error) {
	all := map[string]string{}
	for part := range slices.Chunk(keys, pipelineSize) {
		kinds := make([]*redis.StatusCmd, len(part))
		if err := pipelined(ctx, c, func(p redis.Pipeliner) {
			for i, key := range part {
				kinds[i] = p.Type(ctx, key)
			}
		}); err != nil {
			return nil, err
		}
		counts := make([]*redis.Cmd, len(part))
		count := map[string]string{
			"string": "GET", "list": "LLEN", "hash": "HLEN", "set": "SCARD", "zset": "ZCARD", "stream": "XLEN",
		}
		if err := pipelined(ctx, c, func(p redis.Pipeliner) {
			for i, key := range part {
				if command := count[kinds[i].Val()]; command != "" {
					counts[i] = p.Do(ctx, command, key)
				}
			}
		}); err != nil {
			return nil, err
		}
		for i, key := range part {
			if counts[i] != nil && counts[i].Err() == nil { // else it does not exist, or has expired meanwhile
				all[key] = fmt.Sprintf("%s of %v", kinds[i].Val(), counts[i].Val())
			}
		}
	}
	return all, nil
}

func pipelined(ctx context.Context, c redisconn.Client, add func(redis.Pipeliner)) error {
	cmds, err := c.Pipelined(ctx, func(p redis.Pipeliner) error { add(p); return nil })
	if err := redisconn.PipelineError(cmds); err != nil {
		return sale.Unavailable(err)
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return sale.Unavailable(err)
	}
	return nil
}
