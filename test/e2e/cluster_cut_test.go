package e2e

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/spread"
	"sluice/test/testenv"
)

var clusterCuts = flag.Int("cluster-cuts", 1, "repetitions of TestClusterCutsAMaster")

// cutTimeout is the cluster-node-timeout while a master is cut off.
const cutTimeout = 2 * time.Second

// cutShop is a clusterShop with a further sale that is spread over the three masters. Crowds 0 to 2 buy from the sale
// of one master each, crowds 3 to 5 from the segment on master 0 to 2, and crowd 6 from a sale in a shard of its own on
// master 0. So crowd i buys from master i modulo 3.
type cutShop struct {
	*clusterShop
	ids    []string       // of the sales, by crowd
	moving keyspace.Shard // of the sale of crowd 6
	seen   []*answerTimes // by crowd
}

// answerTimes are the answers of one crowd since the last reset.
type answerTimes struct {
	mu     sync.Mutex
	took   []time.Duration
	errors int // that did not take as long as a timeout
}

func (a *answerTimes) add(began time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, time.Since(began))
	if !ok && !slow(began) {
		a.errors++
	}
}

// reset returns the answers since the last reset.
func (a *answerTimes) reset() (took []time.Duration, errors int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	took, errors = a.took, a.errors
	a.took, a.errors = nil, 0
	return took, errors
}

func newCutShop(t *testing.T, journal bool, env ...string) *cutShop {
	stock := 5000 * (*clusterCuts + 2) // more than the test sells
	c := &cutShop{clusterShop: startClusterShop(t, stock, journal, env...)}
	space := keyspace.Space{Shards: clusterShards}
	wide, segments := c.findWide(space)
	c.createSpread(wide, 3*stock, 3)
	alone := ""
	for i := 0; alone == "" || c.moving == c.shards[0] || c.cluster.MasterOf(c.moving.Guard()) != 0 ||
		c.moving == space.ShardOfSegment(wide, segments[0]); i++ {
		alone = fmt.Sprint("alone", i)
		c.moving = space.ShardOf(alone)
	}
	c.createSale(alone, stock)
	c.ids = append(slices.Clone(c.sales), wide, wide, wide, alone)
	pause := 20 * time.Millisecond
	if *clusterCuts == 1 { // a test without measurements needs fewer purchases
		pause *= 10
	}
	for i, id := range c.ids {
		times := &answerTimes{}
		one := &crowd{s: c.stack, pause: pause, answered: times.add}
		if id == wide {
			one.buyer = buyersOf(segments[i-3], 3)
		}
		c.crowds, c.seen = append(c.crowds, one), append(c.seen, times)
		one.start(id, 3)
	}
	for _, one := range c.crowds {
		one.await(20)
	}
	return c
}

// findWide returns the id of a sale that has a segment on each master, and its segments by master.
func (c *cutShop) findWide(space keyspace.Space) (id string, segments [3]int) {
	for i := 0; ; i++ {
		id = fmt.Sprint("wide", i)
		masters := map[int]int{}
		for k := range segments {
			masters[c.cluster.MasterOf(space.ShardOfSegment(id, k).Guard())] = k
		}
		if len(masters) == len(segments) {
			for at, k := range masters {
				segments[at] = k
			}
			return id, segments
		}
	}
}

// buyersOf returns a function that names buyers with a segment as their home.
func buyersOf(segment, segments int) func(hand, i int) string {
	return func(hand, i int) string {
		for try := 0; ; try++ {
			if name := fmt.Sprintf("w%d-%d-%d", hand, i, try); spread.Home(name, segments) == segment {
				return name
			}
		}
	}
}

// calm waits for further orders of every crowd and returns the times of all answers since the last reset.
func (c *cutShop) calm() []time.Duration {
	for _, s := range c.seen {
		s.reset()
	}
	for _, one := range c.crowds {
		one.await(one.accepted.Load() + int64(min(150, 30**clusterCuts)))
	}
	var all []time.Duration
	for _, s := range c.seen {
		took, _ := s.reset()
		all = append(all, took...)
	}
	return all
}

// cut is one master cut off, by SIGSTOP or SIGKILL.
type cut struct {
	promoted time.Duration // until Redis promoted the replica
	sold     time.Duration // until all sales of that master sold again, after the promotion or the return
	calm     time.Duration // the 99th percentile of the answers to buyers of the other masters before,
	during   time.Duration // and until all sales sold again
}

func percentile(took []time.Duration, p float64) time.Duration {
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(int(float64(len(took))*p), len(took)-1)].Round(100 * time.Microsecond)
}

// cutOff cuts off the master of crowd lost and waits until its replica is promoted and its sales sell again. Then, or
// with early as soon as the replica is promoted, it starts the master again as a replica. It calls before immediately
// before the cut. It verifies that buyers of the other masters get no error.
func (c *cutShop) cutOff(lost int, kill, early bool, before func()) (one cut) {
	t := c.t
	one.calm = percentile(c.calm(), 0.99)
	master := c.cluster.Owner(c.shards[lost].Guard())
	replica := c.cluster.Partner(master)
	masters := func() (names []string) {
		for _, n := range c.cluster.Nodes {
			if n != master && n != replica && c.cluster.IsMaster(n) {
				names = append(names, n.Addr)
			}
		}
		return names
	}
	others := masters()
	c.cluster.FailOver(cutTimeout)
	before()
	for _, s := range c.seen {
		s.reset()
	}
	began := time.Now()
	if kill {
		master.Kill()
	} else {
		master.Pause()
	}
	testenv.Eventually(t, time.Minute, "Redis promotes the replica", func() bool { return c.cluster.IsMaster(replica) })
	one.promoted = time.Since(began)
	back := func() {
		c.cluster.FailOver(0)
		c.cluster.Rejoin(master)
		c.cluster.FailOver(0)
	}
	if early {
		back()
	}
	since := time.Now()
	for i := lost; i < len(c.crowds); i += 3 {
		c.crowds[i].await(c.crowds[i].accepted.Load() + 1)
	}
	one.sold = time.Since(since)
	var all []time.Duration
	failed := 0
	for i, s := range c.seen {
		took, errors := s.reset()
		if i%3 != lost {
			all, failed = append(all, took...), failed+errors
		}
	}
	one.during = percentile(all, 0.99)
	switch now := masters(); {
	case !slices.Equal(now, others): // on a machine that is too slow for the node timeout
		t.Logf("Redis replaced other masters as well: %v, before %v", now, others)
	case failed > 0:
		t.Errorf("buyers of the other masters got %d errors", failed)
	}
	if !early {
		back()
	}
	return one
}

// finish stops the purchases, waits until every order is a row, and verifies the orders of all answers.
func (c *cutShop) finish() {
	for _, one := range c.crowds {
		one.stop.Store(true)
	}
	for _, one := range c.crowds {
		one.wg.Wait()
	}
	for i, one := range c.crowds {
		id := c.ids[i]
		var last audit
		testenv.Eventually(c.t, time.Minute, "the orders of "+id+" are rows, and its audit balances", func() bool {
			last, _ = c.tryAudit(id)
			return last.Balanced && last.Ordered > 0 && last.Ready+last.Delayed+last.Leased == 0
		})
		if last.Dead != 0 {
			c.t.Errorf("audit of %s: %+v", id, last)
		}
		one.unanswered(id)
		one.compare(id, "created")
	}
}

// Redis replaces a master that is cut off, during a sale that is spread over all masters and further sales on each,
// also while a slot moves from that master to another. Buyers of the other masters get no error, and no order of a 202
// is lost: it is in a journal, or with --redis-wait 1 in the promoted replica, which then sells again when it has a
// replica itself.
func TestClusterCutsAMaster(t *testing.T) {
	t.Parallel()
	for name, shape := range map[string]struct {
		journal, moves bool
		env            []string
	}{
		"journal":                  {journal: true},
		"redis-wait=1":             {env: []string{"SLUICE_REDIS_WAIT=1"}},
		"redis-wait=1, slot moves": {journal: true, moves: true, env: []string{"SLUICE_REDIS_WAIT=1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCutShop(t, shape.journal, shape.env...)
			var cuts []cut
			for i := range *clusterCuts {
				lost, kill, before, after := i%3, i%2 == 1, func() {}, func() {}
				if shape.moves {
					lost = 0
					key, other := c.moving.Guard(), c.cluster.Owner(c.shards[1+i%2].Guard())
					before = func() { c.cluster.BeginMove(key, c.cluster.Owner(key), other) }
					after = func() { c.cluster.AbandonMove(key, c.cluster.Owner(key), other) }
				}
				one := c.cutOff(lost, kill, shape.env != nil, before)
				after()
				cuts = append(cuts, one)
				t.Logf("%d: cut off (killed: %v): promoted after %v, selling %v later; p99 of the others %v, before %v",
					i+1, kill, one.promoted, one.sold, one.during, one.calm)
			}
			c.finish()
			c.report(cuts)
		})
	}
}

func (c *cutShop) report(cuts []cut) {
	for _, row := range []struct {
		name string
		of   func(cut) time.Duration
	}{
		{"until the promotion", func(o cut) time.Duration { return o.promoted }},
		{"promotion until sold again", func(o cut) time.Duration { return o.sold }},
		{"sold again, after the cut", func(o cut) time.Duration { return o.promoted + o.sold }},
		{"p99 of the others before", func(o cut) time.Duration { return o.calm }},
		{"p99 of the others", func(o cut) time.Duration { return o.during }},
	} {
		var all []string
		var times []time.Duration
		for _, o := range cuts {
			times = append(times, row.of(o).Round(100*time.Microsecond))
		}
		slices.Sort(times)
		for _, d := range times {
			all = append(all, d.String())
		}
		c.t.Logf("%s: median %v of %s", row.name, times[len(times)/2], strings.Join(all, " "))
	}
}
