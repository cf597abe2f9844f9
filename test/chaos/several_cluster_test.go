package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// Sales on fifteen machines over a Redis Cluster. The machine of each master is cut off without notice, and Redis
// promotes the replica: buyers of the sales on other masters notice nothing, and the sale of the lost one sells again
// before the machine is back. Every accepted order is sold once.
func TestSeveralMachinesOverACluster(t *testing.T) {
	if !*several || *stock != "cluster" {
		t.Skip("make several REDIS=cluster")
	}
	if !inOwnNamespaces(t) {
		return
	}
	n := newClusterSaleRun(t)
	n.begin()
	for i, id := range n.sales[:clusterMasters] {
		t.Run(fmt.Sprintf("master %d is cut off", i+1), func(t *testing.T) { n.cutMaster(t, id) })
	}
	t.Run("a replica is cut off", n.cutReplica)
	t.Run("count", n.endCluster)
}

// newClusterSaleRun opens a shop with a sale on each master, from which the pulse buys, and one over all masters for
// the crowd.
func newClusterSaleRun(t *testing.T) *saleRun {
	t.Helper()
	f := newClusterFarm(t)
	n := openShop(t, f)
	space := keyspace.Space{Shards: f.shards}
	taken := map[string]bool{}
	for i := 0; len(taken) < clusterMasters; i++ {
		id := fmt.Sprint("sale-", i)
		if master := n.owner(space.ShardOf(id)); master != "" && !taken[master] {
			taken[master] = true
			n.offer(id, 1)
			n.pulse.entrances = append(n.pulse.entrances, entrance{id, id, []string{n.shop(overTCP), n.shop(overHTTP)}})
		}
	}
	n.offer(mainSale, 6)
	return n
}

// hostOf returns the host that serves a sale in one shard.
func (n *saleRun) hostOf(id string, cutOff ...string) string {
	return n.owner(keyspace.Space{Shards: n.shards}.ShardOf(id), cutOff...)
}

// cutMaster cuts off the machine of a sale's master until well after another one is promoted.
func (n *saleRun) cutMaster(t *testing.T, saleID string) {
	testenv.Eventually(t, time.Minute, "every master has a replica", n.replicated)
	n.normal(t, "a sale that runs")
	master := n.hostOf(saleID)
	before := n.masters()
	served := map[string]bool{} // sales on the lost master
	for _, id := range n.sales[:clusterMasters] {
		served[id] = n.hostOf(id) == master
	}
	calm := time.Now()
	pause(t.Context(), 5*time.Second)
	from := time.Now()
	n.cut(master)
	testenv.Eventually(t, time.Minute, "another master serves "+saleID,
		func() bool { return n.hostOf(saleID, master) != "" })
	promoted := time.Since(from)
	n.normal(t, "all well without "+master)
	back := time.Now()
	after := n.masters()
	n.join(master)
	n.normal(t, "all well after "+master+" is back")
	onlyOne := len(after) == clusterMasters && !slices.Contains(after, master)
	for _, name := range before {
		onlyOne = onlyOne && (name == master || slices.Contains(after, name))
	}
	if !onlyOne { // on a machine that is too slow for the node timeout
		t.Logf("Redis replaced other masters as well: %v, before %v", after, before)
	}
	t.Logf("%s is cut off: its replica is the master after %.1f s", master, promoted.Seconds())
	for _, e := range n.pulse.entrances {
		f := n.pulse.availability(e.name, from, back)
		t.Logf("%s, on the lost master %t: %s; p99 %v, before %v",
			e.sale, served[e.sale], f, n.pulse.p99(e.name, from, back), n.pulse.p99(e.name, calm, from))
		if !served[e.sale] && onlyOne && f.sold != f.asked {
			t.Errorf("%d buyers of %s on another master were not served", f.asked-f.sold, e.sale)
		}
	}
	n.audit(t)
}

// cutReplica cuts off a machine that is not a master: every buyer is served.
func (n *saleRun) cutReplica(t *testing.T) {
	testenv.Eventually(t, time.Minute, "every master has a replica", n.replicated)
	n.normal(t, "a sale that runs")
	masters := n.masters()
	at := slices.IndexFunc(clusterHosts, func(name string) bool { return !slices.Contains(masters, name) })
	from := time.Now()
	n.cut(clusterHosts[at])
	pause(t.Context(), 3*nodeTimeout*time.Millisecond)
	n.join(clusterHosts[at])
	n.normal(t, "all well after "+clusterHosts[at]+" is back")
	for _, e := range n.pulse.entrances {
		f := n.pulse.availability(e.name, from, time.Now())
		t.Logf("%s: %s", e.sale, f)
		if f.sold != f.asked && slices.Equal(masters, n.masters()) {
			t.Errorf("%d buyers of %s were not served", f.asked-f.sold, e.sale)
		}
	}
	n.audit(t)
}

// endCluster is end over the cluster.
func (n *saleRun) endCluster(t *testing.T) {
	var servers []redisconn.Client
	for _, name := range n.masters() {
		c := n.redis(name)
		defer c.Close()
		servers = append(servers, c)
	}
	n.compare(t, n.farm.clusterClient(), servers...)
}
