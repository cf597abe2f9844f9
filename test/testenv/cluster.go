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
var sharedMasters lasting[RedisCluster]

// SharedRedisMasters returns a cluster of three masters without replicas that all tests of this process share. The
// package needs TestMain, see Main.
func SharedRedisMasters(t TB) *RedisCluster {
	t.Helper()
	sharedMasters.Lock()
	defer sharedMasters.Unlock()
	return sharedMasters.get(t, func(t TB) *RedisCluster { return StartRedisMasters(t, 3) })
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
	// The state is ok before a node knows the owners of all slots; until then it rejects keys with CLUSTERDOWN.
	c.await("the cluster is complete", func(n *Redis) bool {
		info := c.text(n, "CLUSTER", "INFO")
		return strings.Contains(info, "cluster_state:ok") &&
			strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r\n", clusterSlots))
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
