package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/test/testenv"
)

// clusterShop is a stack over a Redis Cluster of three masters, with one sale on each.
type clusterShop struct {
	*stack
	cluster *testenv.RedisCluster
	sales   []string // by master
	shards  []keyspace.Shard
	crowds  []*crowd
}

const (
	clusterShards = 16
	clusterStock  = 3000
)

func newClusterShop(t *testing.T) *clusterShop {
	c := &clusterShop{cluster: testenv.StartRedisCluster(t, 3, "--appendonly", "yes", "--appendfsync", "everysec")}
	c.stack = startStack(t, shape{
		backends: 2, workers: 2, journal: true, redisURL: c.cluster.URL,
		env: []string{fmt.Sprint("SLUICE_SHARDS=", clusterShards)},
	})
	c.sales, c.shards = make([]string, 3), make([]keyspace.Shard, 3)
	for i := 0; c.sales[0] == "" || c.sales[1] == "" || c.sales[2] == ""; i++ {
		id := fmt.Sprint("sale", i)
		shard := keyspace.Space{Shards: clusterShards}.ShardOf(id)
		master := c.cluster.MasterOf(shard.Guard())
		c.sales[master], c.shards[master] = id, shard
	}
	for _, id := range c.sales {
		c.createSale(id, clusterStock)
	}
	for _, id := range c.sales {
		c.crowds = append(c.crowds, hammer(c.stack, id, 3))
	}
	for _, one := range c.crowds {
		one.await(300)
	}
	return c
}

// check sells out every sale and verifies it. Buyers of the sales on other masters than number changed got no 503.
func (c *clusterShop) check(changed int) {
	c.t.Helper()
	for i, one := range c.crowds {
		one.check(c.sales[i], clusterStock)
		if n := one.busy.Load(); i != changed && n > 0 {
			c.t.Errorf("buyers of the sale on master %d got 503 %d times", i, n)
		}
	}
}

// A master is lost, and its replica is promoted: complete, with the data of some seconds ago, or empty. The other
// masters continue to sell meanwhile.
func TestClusterLosesAMaster(t *testing.T) {
	for name, replica := range map[string]struct {
		before, after func(*testenv.Redis) // the loss of the master
	}{
		"complete replica": {func(*testenv.Redis) {}, func(*testenv.Redis) {}},
		"older replica":    {(*testenv.Redis).Pause, (*testenv.Redis).Resume},
		"empty replica": {(*testenv.Redis).Kill, func(r *testenv.Redis) {
			if err := os.RemoveAll(filepath.Join(r.Dir, "appendonlydir")); err != nil {
				t.Error(err)
			}
			r.Start()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClusterShop(t)
			// the master of the events: their loss must not stop purchases from the others
			lost := c.cluster.MasterOf(keyspace.Space{}.Events())
			replica.before(c.cluster.Replica(lost))
			c.crowds[lost].await(c.crowds[lost].accepted.Load() + 300)
			c.cluster.Nodes[lost].Kill()
			for i, one := range c.crowds {
				if i != lost {
					one.await(one.accepted.Load() + 300)
				}
			}
			replica.after(c.cluster.Replica(lost))
			began, at := time.Now(), c.crowds[lost].accepted.Load()
			c.cluster.Promote(lost)
			c.crowds[lost].await(at + 100)
			t.Logf("the lost master's sale sells again after %v", time.Since(began).Round(time.Millisecond))
			c.check(lost)
		})
	}
}

// A slot moves to another master during purchases. Only the sales of its shard pause, also while the move is halfway.
func TestClusterSlotMoves(t *testing.T) {
	t.Parallel()
	c := newClusterShop(t)
	c.cluster.MoveSlot(c.shards[0].Guard(), 0, 1, func() {
		for _, one := range c.crowds[1:] {
			one.await(one.accepted.Load() + 100)
		}
	})
	c.crowds[0].await(c.crowds[0].accepted.Load() + 100)
	c.check(0)
}
