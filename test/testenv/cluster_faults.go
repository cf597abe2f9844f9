package testenv

import (
	"strings"
	"time"
)

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
