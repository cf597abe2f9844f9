package edges

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"sluice/test/testenv"
)

var fleetUse = flag.Duration(
	"fleet-use",
	0,
	"measure the use of a limit of the fleet for so long per row; see make fleet",
)

// TestFleetUse prints how much of a rate two nginx edges and two gateways use at 1.6 times the rate, and how often they
// call Redis. It asserts the bound only: the other values depend on the machine. TestMeasureLimiters of
// internal/fleetlimit reaches higher rates.
func TestFleetUse(t *testing.T) {
	if *fleetUse == 0 {
		t.Skip("a measurement: make fleet")
	}
	fmt.Fprintln(os.Stdout,
		"| rate | clients | offered | used | decisions for a round trip |\n| --- | --- | --- | --- | --- |")
	// At 10/s a lease lasts for 24 s, and 30 s would measure how leases begin.
	for _, r := range []struct{ rate, burst, times int }{{10, 50, 10}, {1000, 200, 1}} {
		for _, clients := range []string{"even", "skewed", "moving"} {
			t.Run(fmt.Sprintf("%d %s", r.rate, clients), func(t *testing.T) {
				measureUse(t, r.rate, r.burst, clients, time.Duration(r.times)**fleetUse)
			})
		}
	}
}

func measureUse(t *testing.T, rate, burst int, clients string, length time.Duration) {
	server := testenv.StartRedis(t)
	server.TrustForLimits()
	o := options{redis: server, policy: fmt.Sprintf(`return { repeat_refusals = false, rules = {
		{ name = "all", key = "ip", rate = "%dr/s", burst = %d, scope = "fleet" } } }`, rate, burst)}
	edges := append(startBoth(t, o, play), startBoth(t, o, play)...)
	c := newCrowd(t)
	start := time.Now()
	weight := func(i int) float64 {
		switch clients {
		case "skewed":
			return 0.8 * math.Pow(0.2, float64(i))
		case "moving":
			return (1 + math.Cos(2*math.Pi*(time.Since(start).Seconds()/length.Seconds()-float64(i)/4))) / 4
		}
		return 0.25
	}
	const connections = 8
	var running sync.WaitGroup
	for i, e := range edges {
		for range connections {
			running.Go(func() {
				due, last := rand.Float64(), start
				for last.Before(start.Add(length)) {
					perSecond := 1.6 * float64(rate) * max(weight(i), 1e-6) / connections
					if due >= 1 {
						due--
						c.send(e, "/")
					} else {
						gap := min((1-due)/perSecond, 0.02)
						<-time.After(time.Duration(gap * float64(time.Second)))
					}
					now := time.Now()
					due += perSecond * now.Sub(last).Seconds()
					last = now
				}
			})
		}
	}
	running.Wait()
	passed := time.Since(start).Seconds()
	c.checkBound(float64(rate), float64(burst))
	trips := 0.0
	for _, e := range edges {
		for _, result := range []string{"granted", "refused", "late", "error"} {
			trips += metric(t, e, `sluice_edge_fleet_leases_total{result="`+result+`"}`)
		}
	}
	decisions := float64(len(c.admitted)) + float64(c.refused.Load()) + float64(c.failed.Load())
	// The burst is not part of the rate.
	used := (float64(len(c.admitted)) - float64(burst)) / (float64(rate) * passed)
	fmt.Fprintf(os.Stdout, "| %d/s | %s | %.2f of the rate | %.3f | %.0f |\n", rate, clients,
		decisions/(float64(rate)*passed), used, decisions/max(trips, 1))
}
