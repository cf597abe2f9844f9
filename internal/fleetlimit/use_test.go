package fleetlimit

import (
	"fmt"
	"math"
	"testing"
)

// TestFleetUsesTheRate runs a fleet of four edges at 1.6 times the rate, and with clients that stay below it.
func TestFleetUsesTheRate(t *testing.T) {
	for _, r := range []struct {
		perSecond, burst int64
		span             float64 // s
		trips            float64 // the least decisions for a round trip
	}{{10, 50, 900, 25}, {1000, 200, 30, 50}, {20000, 1000, 4, 50}} {
		for _, load := range []struct {
			name    string
			weights func(i int, at float64) float64
		}{
			{"even", func(int, float64) float64 { return 1 }},
			{"skewed", func(i int, _ float64) float64 { return math.Pow(0.2, float64(i)) }},
			{"one edge", func(i int, _ float64) float64 { return math.Pow(0.01, float64(i)) }},
			{"moving", func(i int, at float64) float64 { return 1.001 + math.Cos(2*math.Pi*(at-float64(i)/4)) }},
		} {
			for _, times := range []float64{1.6, 0.7} {
				t.Run(fmt.Sprintf("%d/s %s %.1f", r.perSecond, load.name, times), func(t *testing.T) {
					s := newSim(t, 1, r.perSecond, 1e6, int(r.burst), 4, unchanged)
					start := s.edges[0].rule.ahead
					s.after(0, s.sweep)
					s.lease(s.edges[0], Demand{Lanes: 1, Slots: 1}, func() {}) // the server is known from now on
					var weigh func()
					weigh = func() {
						for i, e := range s.edges {
							e.weight = load.weights(i, s.now/1e6/r.span*2)
						}
						s.after(r.span*1e6/200, weigh)
					}
					s.after(0, weigh)
					s.run(start + 1e6)
					s.clients(s.rate * times)
					s.run(start + 3e6)
					s.admitted, s.decisions, s.trips = 0, 0, 0
					from := s.now
					s.run(from + r.span*1e6)
					used := float64(s.admitted) / ((s.now - from) * s.rate)
					answered := float64(s.admitted) / float64(s.decisions)
					trips := float64(s.decisions) / float64(max(s.trips, 1))
					t.Logf("%.3f of the rate, %.3f admitted, %.0f decisions for a round trip", used, answered, trips)
					switch {
					case s.fatal != "":
						t.Error(s.fatal)
					case times > 1 && used < 0.95:
						t.Error("less than 95% of the rate is used")
					case times < 1 && answered < 0.99:
						t.Error("requests below the rate are refused")
					case times > 1 && trips < r.trips:
						t.Errorf("fewer than %.0f decisions for a round trip", r.trips)
					}
				})
			}
		}
	}
}
