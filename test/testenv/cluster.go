package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisCluster is a Redis Cluster of the test's own, in which each master has one replica. Its methods are not safe for
// concurrent use.
//
// No node replaces another one automatically, unless FailOver allows it: on a slow machine a node could be considered
// down. Promote replaces a master.
type RedisCluster struct {
	URL   string   // redis+cluster://127.0.0.1:port,...
	Nodes []*Redis // the masters, then the replica of each

	t       TB
	masters int
	ids     map[string]string // of the nodes, by address
}

// StartRedisCluster starts a cluster and waits until every node has the map of slots and every replica follows.
func StartRedisCluster(t TB, masters int, args ...string) *RedisCluster {
	t.Helper()
	c := &RedisCluster{t: t, masters: masters, ids: map[string]string{}}
	var addrs []string
	for range 2 * masters {
		n := StartRedis(t, append([]string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(FreePort(t)), "--cluster-node-timeout", "60000",
			"--cluster-replica-no-failover", "yes", "--cluster-require-full-coverage", "no",
		}, args...)...)
		c.Nodes, addrs = append(c.Nodes, n), append(addrs, n.Addr)
	}
	c.URL = "redis+cluster://" + strings.Join(addrs[:masters], ",")
	for i, n := range c.Nodes {
		c.do(n, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		c.ids[n.Addr] = c.text(n, "CLUSTER", "MYID")
		if i < masters {
			c.do(n, "CLUSTER", "ADDSLOTSRANGE", i*16384/masters, (i+1)*16384/masters-1)
		}
		host, port, _ := net.SplitHostPort(c.Nodes[0].Addr)
		c.do(n, "CLUSTER", "MEET", host, port, c.Nodes[0].busPort())
	}
	c.await("all nodes know each other", func(n *Redis) bool {
		return strings.Count(c.text(n, "CLUSTER", "NODES"), "connected") == len(c.Nodes) &&
			!strings.Contains(c.text(n, "CLUSTER", "NODES"), "handshake")
	})
	for i, n := range c.Nodes[masters:] {
		c.do(n, "CLUSTER", "REPLICATE", c.ids[addrs[i]])
	}
	c.await("the cluster is complete", func(n *Redis) bool {
		nodes := c.text(n, "CLUSTER", "NODES")
		return strings.Contains(c.text(n, "CLUSTER", "INFO"), "cluster_state:ok") &&
			strings.Count(nodes, "slave") == masters && strings.Count(nodes, "master") == masters
	})
	for _, n := range c.Nodes[masters:] {
		Eventually(t, time.Minute, "the replica follows", func() bool {
			return strings.Contains(c.text(n, "INFO", "replication"), "master_link_status:up")
		})
	}
	return c
}

// busPort returns the port of the cluster bus.
func (r *Redis) busPort() string {
	for i, a := range r.args {
		if a == "--cluster-port" {
			return r.args[i+1]
		}
	}
	return ""
}

func (c *RedisCluster) call(n *Redis, args ...any) (string, error) {
	client := redis.NewClient(&redis.Options{Addr: n.Addr, MaxRetries: -1, ReadTimeout: 20 * time.Second})
	defer client.Close()
	result, err := client.Do(context.Background(), args...).Result()
	return fmt.Sprint(result), err
}

func (c *RedisCluster) do(n *Redis, args ...any) {
	c.t.Helper()
	if _, err := c.call(n, args...); err != nil {
		c.t.Fatalf("testenv: %v: %v", args, err)
	}
}

// text returns the reply as text, "" after an error.
func (c *RedisCluster) text(n *Redis, args ...any) string {
	text, err := c.call(n, args...)
	if err != nil {
		return ""
	}
	return text
}

// await waits until is holds of every node.
func (c *RedisCluster) await(what string, is func(*Redis) bool) {
	c.t.Helper()
	for _, n := range c.Nodes {
		Eventually(c.t, time.Minute, what, func() bool { return is(n) })
	}
}

// Slot returns the slot of a key.
func (c *RedisCluster) Slot(key string) int {
	c.t.Helper()
	n, err := strconv.Atoi(c.text(c.Nodes[0], "CLUSTER", "KEYSLOT", key))
	if err != nil {
		c.t.Fatalf("testenv: slot of %s: %v", key, err)
	}
	return n
}

// MasterOf returns the number of the master that had the slot of a key when the cluster was started.
func (c *RedisCluster) MasterOf(key string) int {
	c.t.Helper()
	slot := c.Slot(key)
	for i := range c.masters {
		if slot < (i+1)*16384/c.masters {
			return i
		}
	}
	return 0
}

// Partner returns the other node of a master and its replica.
func (c *RedisCluster) Partner(n *Redis) *Redis {
	for i, one := range c.Nodes {
		if one == n {
			return c.Nodes[(i+c.masters)%len(c.Nodes)]
		}
	}
	return nil
}

// Owner returns the node that serves a key now. It waits until there is one.
func (c *RedisCluster) Owner(key string) (owner *Redis) {
	c.t.Helper()
	Eventually(c.t, time.Minute, "a master of the slot of "+key, func() bool {
		for _, n := range c.Nodes {
			_, err := c.call(n, "OBJECT", "ENCODING", key) // a replica and another master redirect it
			if err == nil || errors.Is(err, redis.Nil) {
				owner = n
				return true
			}
		}
		return false
	})
	return owner
}

// Promote makes a replica, the master of which was killed, the master of its slots.
func (c *RedisCluster) Promote(replica *Redis) {
	c.t.Helper()
	Eventually(c.t, time.Minute, "the replica is the master", func() bool {
		_, err := c.call(replica, "CLUSTER", "FAILOVER", "TAKEOVER")
		return err != nil && strings.Contains(err.Error(), "replica") || // it is one no longer
			strings.Contains(c.text(replica, "ROLE"), "master")
	})
}

// FailOver makes the nodes replace a master that has not answered for a time; 0 ends that. Nodes that do not run or are
// paused are omitted.
func (c *RedisCluster) FailOver(timeout time.Duration) {
	c.t.Helper()
	never := "no"
	if timeout == 0 {
		timeout, never = time.Minute, "yes"
	}
	for _, n := range c.Nodes {
		if n.Paused() || !n.Running() {
			continue
		}
		c.do(n, "CONFIG", "SET", "cluster-node-timeout", timeout.Milliseconds(), "cluster-replica-no-failover", never)
	}
}

// IsMaster reports whether a node considers itself a master.
func (c *RedisCluster) IsMaster(n *Redis) bool {
	return strings.HasPrefix(c.text(n, "ROLE"), "[master")
}

// Rejoin starts a killed node, or continues a paused one, and waits until it is a replica with the data of its partner.
func (c *RedisCluster) Rejoin(n *Redis) {
	c.t.Helper()
	if n.Paused() {
		n.Resume()
	} else {
		n.Start()
	}
	Eventually(c.t, time.Minute, "the node is a replica", func() bool {
		role := c.text(n, "INFO", "replication")
		return strings.Contains(role, "role:slave") && strings.Contains(role, "master_link_status:up")
	})
}

// MoveSlot moves the slot of a key from one master to another, as redis-cli --cluster reshard does. halfway, if not
// nil, is called when the first keys have moved.
func (c *RedisCluster) MoveSlot(key string, source, target *Redis, halfway func()) {
	c.t.Helper()
	c.BeginMove(key, source, target)
	if halfway != nil {
		halfway()
	}
	slot := c.Slot(key)
	for c.moveKeys(slot, source, target) {
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
	c.moveKeys(slot, source, target)
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

// moveKeys moves up to three keys of a slot. It returns false if there is none.
func (c *RedisCluster) moveKeys(slot int, source, target *Redis) bool {
	c.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: source.Addr, ReadTimeout: 20 * time.Second})
	defer client.Close()
	keys, err := client.ClusterGetKeysInSlot(context.Background(), slot, 3).Result()
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
	if err := client.Do(context.Background(), args...).Err(); err != nil {
		c.t.Fatalf("testenv: move slot %d: %v", slot, err)
	}
	return true
}
