package testenv

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// MoveSlot moves the slot of a key from one master to another, as redis-cli --cluster reshard does. halfway, if not
// nil, is called when the first keys have moved.
func (c *RedisCluster) MoveSlot(key string, source, target *Redis, halfway func()) {
	c.t.Helper()
	c.BeginMove(key, source, target)
	if halfway != nil {
		halfway()
	}
	slot := c.Slot(key)
	for c.moveKeys(slot, source, target, 100) {
	}
	for _, n := range []*Redis{target, source} {
		c.do(n, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[target.Addr])
	}
}

// BeginMove begins MoveSlot and moves the first keys.
func (c *RedisCluster) BeginMove(key string, source, target *Redis) {
	c.t.Helper()
	slot := c.Slot(key)
	c.do(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.ids[source.Addr])
	c.do(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.ids[target.Addr])
	c.moveKeys(slot, source, target, 3)
}

// AbandonMove ends a move after owner replaced the source: it deletes the keys that have moved to the target.
func (c *RedisCluster) AbandonMove(key string, owner, target *Redis) {
	c.t.Helper()
	slot := c.Slot(key)
	c.do(target, "CLUSTER", "SETSLOT", slot, "NODE", c.ids[owner.Addr]) // during an import nodes ignore a new owner
	c.do(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.ids[owner.Addr])
	ctx, client := context.Background(), redis.NewClient(&redis.Options{Addr: target.Addr, PoolSize: 1})
	defer client.Close()
	keys, err := client.ClusterGetKeysInSlot(ctx, slot, 1_000_000).Result()
	if err != nil {
		c.t.Fatalf("testenv: abandon the move of slot %d: %v", slot, err)
	}
	if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, k := range keys {
			p.Do(ctx, "ASKING")
			p.Del(ctx, k)
		}
		return nil
	}); err != nil {
		c.t.Fatalf("testenv: abandon the move of slot %d: %v", slot, err)
	}
	c.do(target, "CLUSTER", "SETSLOT", slot, "STABLE")
}

// moveKeys moves up to n keys of a slot. It returns false if there is none.
func (c *RedisCluster) moveKeys(slot int, source, target *Redis, n int) bool {
	c.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: source.Addr, ReadTimeout: 20 * time.Second})
	defer client.Close()
	keys, err := client.ClusterGetKeysInSlot(context.Background(), slot, n).Result()
	if err != nil {
		c.t.Fatalf("testenv: move slot %d: %v", slot, err)
	}
	if len(keys) == 0 {
		return false
	}
	host, port, _ := net.SplitHostPort(target.Addr)
	args := []any{"MIGRATE", host, port, "", 0, 10_000, "KEYS"}
	for _, k := range keys {
		args = append(args, k)
	}
	Eventually(c.t, time.Minute, "the target accepts keys", func() bool {
		err := client.Do(context.Background(), args...).Err()
		if err != nil && strings.Contains(err.Error(), "CLUSTERDOWN") { // another master has just been replaced
			return false
		}
		if err != nil {
			c.t.Fatalf("testenv: move slot %d: %v", slot, err)
		}
		return true
	})
	return true
}
