package fleetlimit

import (
	"fmt"
	"math"
	"testing"
)

// load distributes requests over edges.
type load struct {
	name    string
	weights func(i int, at float64) float64 // the weight of edge i; at counts periods
}

// loads are the loads of the tests below. With -short they use one, because the race detector finds nothing in a single
// goroutine. The make target plain uses all.
func loads() []load {
	all := []load{
		{"moving", func(i int, at float64) float64 { return 1.001 + math.Cos(2*math.Pi*(at-float64(i)/4)) }},
		{"even", func(int, float64) float64 { return 1 }},
		{"skewed", func(i int, _ float64) float64 { return math.Pow(0.2, float64(i)) }},
		{"one edge", func(i int, _ float64) float64 { return math.Pow(0.01, float64(i)) }},
	}
	if testing.Short() {
		return all[:1]
	}
	return all
}

// TestFleetUsesTheRate runs a fleet of four edges at 1.6 times the rate, and with clients below the rate.
func TestFleetUsesTheRate(t *testing.T) {
	for _, r := range []struct {
		perSecond, burst int64
		span             float64 // s
		trips            float64 // minimum decisions for each round trip
	}{{10, 50, 900, 7}, {1000, 200, 30, 50}, {20000, 1000, 4, 50}} {
		for _, load := range loads() {
			for _, times := range []float64{1.6, 0.7} {
				t.Run(fmt.Sprintf("%d/s %s %.1f", r.perSecond, load.name, times), func(t *testing.T) {
					s := newSim(t, 1, r.perSecond, 1e6, int(r.burst), 4, unchanged)
					start := s.edges[0].rule.ahead
					s.after(0, s.sweep)
					s.lease(s.edges[0], Demand{Lanes: 1, Slots: 1}, func() {}) // makes the server usable
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

// TestColdFleetUsesTheRate runs four edges without initial leases at 1.6 times a rate of 10/s for 40 s. The burst is
// used up in the first 8 s. make fleet uses the same configuration.
func TestColdFleetUsesTheRate(t *testing.T) {
	const rate, burst, span, runs = 10, 50, 40.0, 40
	for _, load := range loads() {
		t.Run(load.name, func(t *testing.T) {
			var admitted, decisions, trips int
			for seed := range uint64(runs) {
				s := newSim(t, seed, rate, 1e6, burst, 4, unchanged)
				s.server.trust(s.edges[0].rule)
				var weigh func()
				weigh = func() {
					for i, e := range s.edges {
						e.weight = load.weights(i, s.now/1e6/span)
					}
					s.after(1e5, weigh)
				}
				weigh()
				s.after(0, s.sweep)
				s.clients(1.6 * s.rate)
				s.run(span * 1e6)
				if s.fatal != "" {
					t.Fatalf("seed %d: %s", seed, s.fatal)
				}
				admitted += s.admitted - burst
				decisions += s.decisions
				trips += s.trips
			}
			used := float64(admitted) / (rate * span * runs)
			t.Logf("%.3f of the rate, %.1f decisions for a round trip", used, float64(decisions)/float64(trips))
			if used < 0.95 {
				t.Error("less than 95% of the rate is used")
			}
		})
	}
}

// TestSlowRedisIsCalledRarely runs a Redis with round trips of a part of the 50 ms window of a slot, or longer. Either
// 64 clients wait for each decision before they send the next request, or requests arrive at 1.6 times the rate. With
// -short it runs two of the cases, see loads.
func TestSlowRedisIsCalledRarely(t *testing.T) {
	cases := []struct {
		windows  float64 // that a round trip takes
		patient  bool
		admitted float64 // minimum share of admitted requests
		unknown  float64 // minimum share of requests that on_error decides
		trips    float64 // minimum decisions for each round trip
	}{
		{0.5, true, 0.99, 0, 50},
		{0.5, false, 0.55, 0, 50},
		{1, true, 0, 0.99, 1000},
		{1, false, 0, 0.95, 1000},
		{2, true, 0, 0.99, 1000},
		{2, false, 0, 0.95, 1000},
		{5, true, 0, 0.99, 1000},
		{5, false, 0, 0.95, 1000},
	}
	if testing.Short() {
		cases = cases[:2]
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%.1f windows, patient clients %t", c.windows, c.patient), func(t *testing.T) {
			s := newSim(t, 1, 20_000, 1e6, 1000, 4, unchanged)
			s.server.trust(s.edges[0].rule)
			s.steady, s.rtt = true, c.windows*s.edges[0].rule.window
			s.after(0, s.sweep)
			if c.patient {
				for i := range 64 {
					s.patient(s.edges[i%4])
				}
			} else {
				s.clients(1.6 * s.rate)
			}
			s.run(3e6)
			s.admitted, s.decisions, s.trips, s.unknown = 0, 0, 0, 0
			s.run(9e6)
			admitted := float64(s.admitted) / float64(s.decisions)
			unknown := float64(s.unknown) / float64(s.decisions)
			trips := float64(s.decisions) / float64(s.trips)
			t.Logf("%.3f admitted, %.3f by on_error, %.1f decisions for a round trip", admitted, unknown, trips)
			switch {
			case s.fatal != "":
				t.Error(s.fatal)
			case admitted < c.admitted:
				t.Errorf("less than %.2f of the requests are admitted", c.admitted)
			case unknown < c.unknown:
				t.Errorf("on_error decides about less than %.2f of the requests", c.unknown)
			case trips < c.trips:
				t.Errorf("fewer than %.0f decisions for a round trip", c.trips)
			}
		})
	}
}

// TestSlowRedisIsSufficientBelowTheLimit runs clients at 0.7 times the rate, with a Redis that takes half a window.
func TestSlowRedisIsSufficientBelowTheLimit(t *testing.T) {
	s := newSim(t, 1, 20_000, 1e6, 1000, 4, unchanged)
	s.server.trust(s.edges[0].rule)
	s.steady, s.rtt = true, s.edges[0].rule.window/2
	s.after(0, s.sweep)
	s.clients(0.7 * s.rate)
	s.run(5e6)
	answered := float64(s.admitted) / float64(s.decisions)
	t.Logf("%.3f admitted, %.1f decisions for a round trip", answered, float64(s.decisions)/float64(s.trips))
	if s.fatal != "" || answered < 0.95 {
		t.Errorf("%.3f of the requests below the rate are admitted, want 0.95; %s", answered, s.fatal)
	}
}

// TestFleetRecoversFromASlowRedis runs edges above the limit; most of them receive few requests. Redis takes longer
// than a window for some time. One second later (the longest pause), on_error decides about no request of an edge that
// has called Redis again, even if Redis has no slot for it.
func TestFleetRecoversFromASlowRedis(t *testing.T) {
	unknown := 0
	for seed := range uint64(40) {
		s := newSim(t, seed, 20, 1e6, 9, 4, unchanged)
		s.server.trust(s.edges[0].rule)
		for i, e := range s.edges {
			e.weight = math.Pow(0.2, float64(i))
		}
		s.steady, s.rtt = true, 1.05*s.edges[0].rule.window // a lease that takes half a second fails
		s.after(0, s.sweep)
		s.clients(1.6 * s.rate)
		s.run(10e6)
		if s.unknown == 0 {
			t.Fatalf("seed %d: on_error has decided about no request", seed)
		}
		s.rtt = 200
		s.run(12e6)
		s.unknown = 0
		s.run(40e6)
		if s.fatal != "" {
			t.Fatalf("seed %d: %s", seed, s.fatal)
		}
		unknown += s.unknown
	}
	if unknown > 0 {
		t.Errorf("on_error has decided about %d requests after Redis has recovered", unknown)
	}
}
