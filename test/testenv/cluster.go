package testenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisCluster is a Redis Cluster of the test's own, in which each master has one replica, or none has. Its methods are
// not safe for concurrent use, except for different pairs of a master and its replica.
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

// clusterSlots is the number of slots of every Redis Cluster.
const clusterSlots = 16384

// StartRedisCluster starts a cluster and waits until every node has the map of slots and every replica follows.
func StartRedisCluster(t TB, masters int, args ...string) *RedisCluster {
	t.Helper()
	c := startCluster(t, masters, 2*masters, args...)
	for i, n := range c.Nodes[masters:] {
		c.do(n, "CLUSTER", "REPLICATE", c.ids[c.Nodes[i].Addr])
	}
	c.await("the cluster has replicas", func(n *Redis) bool {
		nodes := c.text(n, "CLUSTER", "NODES")
		return strings.Count(nodes, "slave") == masters && strings.Count(nodes, "master") == masters
	})
	for _, n := range c.Nodes[masters:] {
		Eventually(t, time.Minute, "the replica follows", func() bool {
			return strings.Contains(c.text(n, "INFO", "replication"), "master_link_status:up")
		})
	}
	return c
}

// StartRedisMasters starts a cluster without replicas and waits until every node has the map of slots.
func StartRedisMasters(t TB, masters int, args ...string) *RedisCluster {
	t.Helper()
	return startCluster(t, masters, masters, args...)
}

// sharedMasters is the cluster of SharedRedisMasters.
var sharedMasters struct {
	sync.Mutex
	cluster *RedisCluster
	life    untilMain
}

// SharedRedisMasters returns a cluster of three masters without replicas that all tests of this process share. The
// package needs TestMain, see Main.
func SharedRedisMasters(t TB) *RedisCluster {
	t.Helper()
	s := &sharedMasters
	s.Lock()
	defer s.Unlock()
	if s.cluster == nil {
		s.life.TB = t // which fails if a node does not start
		s.cluster = StartRedisMasters(&s.life, 3)
	}
	return s.cluster
}

// stopRedisMasters stops the cluster of SharedRedisMasters.
func stopRedisMasters() {
	s := &sharedMasters
	s.Lock()
	defer s.Unlock()
	s.life.end()
	s.cluster = nil
}

// untilMain is a TB whose cleanups and directories last until the end of Main.
type untilMain struct {
	TB

	cleanups []func()
}

// Cleanup postpones f until end.
func (u *untilMain) Cleanup(f func()) { u.cleanups = append(u.cleanups, f) }

// TempDir returns a directory that exists until end.
func (u *untilMain) TempDir() string {
	dir, err := os.MkdirTemp("", "sluice-test-")
	if err != nil {
		u.Fatalf("testenv: %v", err)
	}
	u.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (u *untilMain) end() {
	for _, f := range slices.Backward(u.cleanups) {
		f()
	}
	u.cleanups = nil
}

// startCluster starts the nodes and divides the slots among the first of them.
func startCluster(t TB, masters, nodes int, args ...string) *RedisCluster {
	t.Helper()
	c := &RedisCluster{t: t, masters: masters, ids: map[string]string{}}
	var addrs []string
	for range nodes {
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
			c.do(n, "CLUSTER", "ADDSLOTSRANGE", i*clusterSlots/masters, (i+1)*clusterSlots/masters-1)
		}
		host, port, _ := net.SplitHostPort(c.Nodes[0].Addr)
		c.do(n, "CLUSTER", "MEET", host, port, c.Nodes[0].busPort())
	}
	c.await("all nodes know each other", func(n *Redis) bool {
		return strings.Count(c.text(n, "CLUSTER", "NODES"), "connected") == len(c.Nodes) &&
			!strings.Contains(c.text(n, "CLUSTER", "NODES"), "handshake")
	})
	c.await("the cluster is complete", func(n *Redis) bool {
		return strings.Contains(c.text(n, "CLUSTER", "INFO"), "cluster_state:ok")
	})
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

// do runs a command, and repeats it while the node does not know of a new master.
func (c *RedisCluster) do(n *Redis, args ...any) {
	c.t.Helper()
	var err error
	Eventually(c.t, time.Minute, fmt.Sprintf("%s knows of a new master: %v", n.Addr, args), func() bool {
		_, err = c.call(n, args...)
		return err == nil || !strings.Contains(err.Error(), "Target node is not a master")
	})
	if err != nil {
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

// await waits until is returns true for every node.
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
		if slot < (i+1)*clusterSlots/c.masters {
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
		return err != nil && strings.Contains(err.Error(), "replica") || // it is no longer one
			c.IsMaster(replica)
	})
}

// HandOver makes the replica of a master the master, without a loss: the master stops its clients until the replica has
// all data.
func (c *RedisCluster) HandOver(master *Redis) {
	c.t.Helper()
	replica := c.Partner(master)
	var asked time.Time
	Eventually(c.t, time.Minute, "the replica takes over", func() bool {
		if time.Since(asked) > handOverTimeout { // an earlier request would start again
			_, _ = c.call(replica, "CLUSTER", "FAILOVER") // fails until the replica follows
			asked = time.Now()
		}
		return c.IsMaster(replica)
	})
	c.awaitReplica(master)
}

// handOverTimeout is the time after which Redis abandons a manual failover (CLUSTER_MF_TIMEOUT), and some more.
const handOverTimeout = 6 * time.Second

// ReplicaData is the data of a replica when its master is lost.
type ReplicaData string

// Data of a replica.
const (
	Complete ReplicaData = "complete" // all data that it has received
	Old      ReplicaData = "old"      // as of an earlier time
	Empty    ReplicaData = "empty"    // nothing
)

// Replace kills a master and promotes its replica, which then has the given data; until Rejoin the cluster has one node
// less. Between, if not nil, is called before the loss; an Old replica lacks what is written meanwhile.
func (c *RedisCluster) Replace(master *Redis, data ReplicaData, between func()) {
	c.t.Helper()
	c.Lose(master, data, between)
	c.Promote(c.Partner(master))
}

// Lose is Replace without the promotion.
func (c *RedisCluster) Lose(master *Redis, data ReplicaData, between func()) {
	c.t.Helper()
	replica := c.Partner(master)
	if data != Complete {
		// A paused replica would read from its socket what was sent meanwhile.
		replica.Kill()
	}
	if between != nil {
		between()
	}
	master.Kill()
	if data == Empty {
		replica.Erase()
	}
	if data != Complete {
		replica.Start()
	}
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
	c.awaitReplica(n)
}

func (c *RedisCluster) awaitReplica(n *Redis) {
	c.t.Helper()
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
