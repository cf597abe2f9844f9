package chaos

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

var failovers = flag.Int(
	"failovers",
	0,
	"how often TestFailovers cuts the master of Redis off: needs root, iproute2 and haproxy",
)

// Measures how long nothing is sold when the machine with the master of Redis, and the Sentinel on it, is cut off, and
// prints the steps of the failover.
func TestFailovers(t *testing.T) {
	if *failovers == 0 {
		t.Skip("make failovers")
	}
	if !inOwnNamespaces(t) {
		return
	}
	n := newSaleRun(t)
	n.begin()
	var without []float64
	for i := range *failovers {
		t.Run(fmt.Sprint("failover ", i+1), func(t *testing.T) { without = append(without, n.failover(t).Seconds()) })
	}
	t.Run("count", n.end)
	if len(without) < *failovers {
		return // t has failed already
	}
	slices.Sort(without)
	middle := (without[(len(without)-1)/2] + without[len(without)/2]) / 2
	t.Logf("nothing was sold for (s): %.1f; median %.1f, worst %.1f", without, middle, without[len(without)-1])
}

// failover cuts the master off, and returns how long no purchase succeeded.
func (n *saleRun) failover(t *testing.T) (without time.Duration) {
	var name string
	testenv.Eventually(t, time.Minute, "a master with two replicas that have all", func() bool {
		name = n.master()
		if name == "" {
			return false
		}
		master := n.redis(name)
		defer master.Close()
		return strings.Count(master.Info(t.Context(), "replication").Val(), "state=online") == 2
	})
	// A restart may connect a backend to another Sentinel, also to the one on the machine that is cut off.
	for i, p := range n.backends {
		n.restart(t, p, backendHosts[i])
		n.awaitReady(backendHosts[i])
	}
	n.normal(t, "a sale that runs")
	from := time.Now()
	n.cut(name)
	n.normal(t, "buyers are served while "+name+" is cut off")
	for _, e := range n.pulse.entrances {
		f := n.pulse.availability(e.name, from, time.Now())
		t.Logf("by %s: %s", e.name, f)
		without = max(without, f.silence)
	}
	n.logTimeline(t, from)
	n.join(name)
	n.audit(t)
	return without
}
