package fleetlimit_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/internal/fleetlimit"
	"sluice/test/testenv"
)

var measureFor = flag.Duration("measure", 0, "measure the use of a limit for so long per row; see make fleet")

// decided is an admitted request with the times at which the limiter was called and returned.
type decided struct{ from, to time.Time }

// TestMeasureLimiters runs four limiters, as in gateways, at 1.6 times the rate over one Redis server in real time. It
// prints the used share of the rate and the number of calls to Redis. It reaches rates that an HTTP client on the same
// machine cannot. It asserts only the bound, because the other values depend on the machine.
func TestMeasureLimiters(t *testing.T) {
	if *measureFor == 0 {
		t.Skip("a measurement: make fleet")
	}
	fmt.Fprintln(os.Stdout, "| rate | clients | offered | used | decisions for a round trip | per decision |\n"+
		"| --- | --- | --- | --- | --- | --- |")
	for _, r := range []struct{ rate, burst int64 }{{1000, 200}, {20000, 1000}} {
		for _, clients := range []string{"even", "skewed", "moving"} {
			t.Run(fmt.Sprintf("%d %s", r.rate, clients), func(t *testing.T) { measure(t, r.rate, r.burst, clients) })
		}
	}
}

func measure(t *testing.T, rate, burst int64, clients string) {
	const edges, goroutines = 4, 4
	server := testenv.StartRedis(t)
	server.TrustForLimits()
	r := fleetlimit.NewRule("all", rate, 1e6, int(burst))
	var trips atomic.Int64
	epoch := time.Now()
	limiters := make([]*fleetlimit.Limiter, edges)
	for i := range limiters {
		limiters[i] = fleetlimit.NewLimiter(fleetlimit.LimiterConfig{
			Client: fleetlimit.NewClient(server.Client(), func() float64 {
				return float64(time.Since(epoch).Nanoseconds()) / 1e3
			}),
			OnLease: func(fleetlimit.Result) { trips.Add(1) },
		})
		defer limiters[i].Close()
	}
	start, length := time.Now(), *measureFor
	weight := func(i int) float64 {
		switch clients {
		case "skewed":
			return []float64{0.806, 0.161, 0.026, 0.007}[i]
		case "moving":
			return (1 + math.Cos(2*math.Pi*(time.Since(start).Seconds()/length.Seconds()-float64(i)/edges))) / edges
		}
		return 1.0 / edges
	}
	var mu sync.Mutex
	var admitted []decided
	var decisions, busy atomic.Int64
	var running sync.WaitGroup
	for i, l := range limiters {
		for range goroutines {
			running.Go(func() {
				var mine []decided
				due, last := rand.Float64(), start
				for last.Before(start.Add(length)) {
					for ; due >= 1; due-- {
						from := time.Now()
						d := l.Take(r, "client")
						to := time.Now()
						decisions.Add(1)
						busy.Add(int64(to.Sub(from)))
						if d.Outcome == fleetlimit.Admitted {
							mine = append(mine, decided{from, to})
						}
					}
					<-time.After(time.Millisecond)
					now := time.Now()
					due += 1.6 * float64(rate) * weight(i) / goroutines * now.Sub(last).Seconds()
					last = now
				}
				mu.Lock()
				defer mu.Unlock()
				admitted = append(admitted, mine...)
			})
		}
	}
	running.Wait()
	passed := time.Since(start).Seconds()
	checkBound(t, admitted, float64(rate), float64(burst))
	n := float64(decisions.Load())
	// The burst is not part of the rate.
	fmt.Fprintf(os.Stdout, "| %d/s | %s | %.2f of the rate | %.3f | %.0f | %.1f us |\n", rate, clients,
		n/(float64(rate)*passed), (float64(len(admitted))-float64(burst))/(float64(rate)*passed),
		n/float64(max(trips.Load(), 1)), float64(busy.Load())/1e3/n)
}

// checkBound checks intervals from 500 starting points. It counts only requests that were certainly admitted within an
// interval.
func checkBound(t *testing.T, admitted []decided, rate, burst float64) {
	t.Helper()
	byEnd := slices.SortedFunc(slices.Values(admitted), func(a, b decided) int { return a.to.Compare(b.to) })
	starts := slices.SortedFunc(slices.Values(admitted), func(a, b decided) int { return a.from.Compare(b.from) })
	for i := 0; i < len(starts); i += max(len(starts)/500, 1) {
		from, n := starts[i].from, 0
		for _, a := range byEnd {
			if a.from.Before(from) {
				continue
			}
			n++
			length := a.to.Sub(from).Seconds()
			if most := rate*length + burst + 1; float64(n) > most {
				t.Fatalf("%d requests admitted in %.6f s, and the bound is %.1f", n, length, most)
			}
		}
	}
}
