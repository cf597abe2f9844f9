package rebuild

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"sluice/backend/recovery/guard"
)

// keyType is a key of the shard and its type, as Redis names it. of names its sale; "" if it belongs to none.
type keyType struct{ key, want, of string }

// explain adds guard.ErrKeyType, the keys and the remedy to an error because of keys of the wrong type. Redis names
// neither the key nor its type.
func (j *job) explain(ctx context.Context, err error) error {
	if !strings.Contains(err.Error(), "WRONGTYPE") {
		return err
	}
	keys := j.keyTypes(ctx)
	types := make([]*redis.StatusCmd, len(keys))
	_, _ = j.client.Pipelined(ctx, func(p redis.Pipeliner) error { // it names no key that it could not read
		for i, k := range keys {
			types[i] = p.Type(ctx, k.key)
		}
		return nil
	})
	var wrong []string
	for i, k := range keys {
		if is := types[i].Val(); is != "" && is != "none" && is != k.want {
			wrong = append(wrong, fmt.Sprintf("key %s%s is a %s and must be a %s: redis-cli RENAME %[1]s %[1]s:broken",
				k.key, k.of, is, k.want))
		}
	}
	if len(wrong) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s (%w)", guard.ErrKeyType, strings.Join(wrong, "; "), err)
}

// keyTypes returns the keys that a rebuild reads, with those of the sales that SQL has. It leaves out those that a
// rebuild only replaces (Stock, Returns), and batches.
func (j *job) keyTypes(ctx context.Context) []keyType {
	shard, dead := j.shard, j.shard.Dead()
	keys := []keyType{
		{shard.Ready(), "list", ""}, {shard.Orders(), "stream", ""}, {shard.Leases(), "zset", ""},
		{shard.Consumers(), "hash", ""}, {shard.Delayed(), "zset", ""}, {shard.Attempts(), "hash", ""},
		{shard.Crashes(), "hash", ""}, {dead.Times(), "zset", ""}, {dead.Letters(), "hash", ""},
		{dead.Index(), "zset", ""}, {shard.Wake(), "list", ""}, {shard.RebuildReady(), "list", ""},
		{shard.OrderNumbers(), "string", ""}, {shard.Sales(), "set", ""},
	}
	inSQL, _ := j.summaries(ctx)
	for _, s := range inSQL {
		of := " of sale " + s.ID
		keys = append(keys, keyType{shard.Sale(s.ID), "hash", of}, keyType{shard.Buyers(s.ID), "hash", of})
	}
	return keys
}
