package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"syscall"
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
	clusterStock  = 500
)

// newClusterShop starts the stack and three buyers for each sale.
func newClusterShop(t *testing.T, stock int, env ...string) *clusterShop {
	c := startClusterShop(t, stock, true, env...)
	for _, id := range c.sales {
		c.crowds = append(c.crowds, hammer(c.stack, id, 3))
	}
	for _, one := range c.crowds {
		one.await(100)
	}
	return c
}

// startClusterShop starts the stack and creates the sales.
func startClusterShop(t *testing.T, stock int, journal bool, env ...string) *clusterShop {
	// Without fsync: an fsync that waits for a busy disk stops Redis for seconds, and buyers would get 503. These tests
	// kill processes and not machines, so no written byte is lost.
	c := &clusterShop{cluster: testenv.StartRedisCluster(t, 3, "--appendonly", "yes", "--appendfsync", "no")}
	c.stack = startStack(t, shape{
		backends: 2, workers: 2, journal: journal, redisURL: c.cluster.URL,
		env: append(env, fmt.Sprint("SLUICE_SHARDS=", clusterShards)),
	})
	c.sales, c.shards = make([]string, 3), make([]keyspace.Shard, 3)
	for i := 0; c.sales[0] == "" || c.sales[1] == "" || c.sales[2] == ""; i++ {
		id := fmt.Sprint("sale", i)
		shard := keyspace.Space{Shards: clusterShards}.ShardOf(id)
		master := c.cluster.MasterOf(shard.Guard())
		c.sales[master], c.shards[master] = id, shard
	}
	for _, id := range c.sales {
		c.createSale(id, stock)
	}
	return c
}

// sells waits for 100 further orders, or until the sale is sold out.
func (c *clusterShop) sells(one *crowd) {
	c.t.Helper()
	one.await(one.accepted.Load() + 100)
}

// check sells out every sale and verifies it. Buyers of the sales on masters other than this one got no 503 because of
// the change.
func (c *clusterShop) check(changed int) {
	c.t.Helper()
	for i, one := range c.crowds {
		one.check(c.sales[i], clusterStock)
		if n := one.rejected.Load(); i != changed && n > 0 {
			c.t.Errorf("buyers of the sale on master %d got 503 %d times", i, n)
		}
	}
}

// A master is lost, and its replica is promoted: complete, with the data of some seconds ago, or empty. The other
// masters continue to sell meanwhile.
func TestClusterLosesAMaster(t *testing.T) {
	for _, data := range []testenv.ReplicaData{testenv.Complete, testenv.Old, testenv.Empty} {
		t.Run(string(data)+" replica", func(t *testing.T) {
			t.Parallel()
			c := newClusterShop(t, clusterStock)
			// the master of the events: their loss must not stop purchases from the others
			lost := c.cluster.MasterOf(keyspace.Space{}.Events())
			partner := c.cluster.Partner(c.cluster.Nodes[lost])
			c.cluster.Lose(c.cluster.Nodes[lost], data, func() {
				c.sells(c.crowds[lost])
			})
			for i, one := range c.crowds {
				if i != lost {
					c.sells(one)
				}
			}
			began := time.Now()
			c.cluster.Promote(partner)
			c.sells(c.crowds[lost])
			t.Logf("the lost master's sale sells again after %v", time.Since(began).Round(time.Millisecond))
			c.check(lost)
		})
	}
}

// A slot moves to another master during purchases. Only the sales of its shard pause, also while the move is halfway.
func TestClusterSlotMoves(t *testing.T) {
	t.Parallel()
	c := newClusterShop(t, clusterStock)
	c.cluster.MoveSlot(c.shards[0].Guard(), c.cluster.Nodes[0], c.cluster.Nodes[1], func() {
		for _, one := range c.crowds[1:] {
			c.sells(one)
		}
	})
	c.sells(c.crowds[0])
	c.check(0)
}

// Random faults, one after the other, during purchases: masters are killed and replaced by complete, old or empty
// replicas, slots move, backends and workers are killed and paused. Every confirmed order is a row, once.
func TestClusterFaults(t *testing.T) {
	t.Parallel()
	rounds, seed := *clusterRounds, *clusterSeed
	if seed == 0 {
		seed = time.Now().UnixNano()
	}
	t.Logf("%d faults with seed %d", rounds, seed)
	rnd := rand.New(rand.NewPCG(uint64(seed), 0)) //nolint:gosec // any sequence is sufficient
	stock := 200 + 200*rounds
	c := newClusterShop(t, stock, "SLUICE_REDIS_WAIT=1")
	replace := func(data testenv.ReplicaData) func(at int) {
		return func(at int) {
			master := c.cluster.Owner(c.shards[at].Guard())
			c.cluster.Replace(master, data, nil)
			c.cluster.Rejoin(master)
		}
	}
	faults := []struct {
		name string
		do   func(at int)
	}{
		{"master replaced by a complete replica", replace(testenv.Complete)},
		{"master replaced by an old replica", replace(testenv.Old)},
		{"master replaced by an empty replica", replace(testenv.Empty)},
		{"slot moved", func(at int) {
			key := c.shards[at].Guard()
			from := c.cluster.Owner(key)
			to := c.cluster.Owner(c.shards[(at+1)%3].Guard())
			if from != to {
				c.cluster.MoveSlot(key, from, to, nil)
			}
		}},
		{"shard moved", func(at int) {
			to := c.cluster.Owner(c.shards[(at+1)%3].Guard())
			_, errOut, code := sluiceRun(t, c.env, "shard", "move", fmt.Sprint(int(c.shards[at])), "--to", to.Addr)
			t.Logf("shard move: exit %d %s", code, errOut) // it is refused until a rebuild has ended
		}},
		{"backend killed", func(at int) { c.backends[at%2].crash() }},
		{"worker killed", func(at int) { c.workers[at%2].crash() }},
		{"backend paused", func(at int) {
			c.backends[at%2].Signal(syscall.SIGSTOP)
			time.AfterFunc(4*time.Second, func() { c.backends[at%2].Signal(syscall.SIGCONT) })
		}},
	}
	for round := range rounds {
		fault, at := faults[rnd.IntN(len(faults))], rnd.IntN(3)
		began, before := time.Now(), c.crowds[at].accepted.Load()
		fault.do(at)
		c.crowds[at].await(before + 100)
		t.Logf("%d: %s at sale %d: %v until 100 further orders", round+1, fault.name, at,
			time.Since(began).Round(10*time.Millisecond))
	}
	for _, b := range c.backends {
		b.awaitUp(t)
	}
	for i, one := range c.crowds {
		one.check(c.sales[i], int64(stock))
	}
}

var (
	clusterRounds = flag.Int("cluster-faults", 3, "faults of TestClusterFaults")
	clusterSeed   = flag.Int64("cluster-seed", 0, "seed of TestClusterFaults; 0: random")
)
