package rehearsal

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

var curves = []Curve{Spike, Uniform, Ramp}

func TestCurvesAreMonotonicFromZeroToOne(t *testing.T) {
	for _, c := range curves {
		if from, to := c.At(0), c.At(1); from != 0 || math.Abs(to-1) > 1e-9 {
			t.Errorf("%s goes from %g to %g", c, from, to)
		}
		draw := rand.New(rand.NewPCG(1, 2))
		for range 10_000 {
			a, b := draw.Float64(), draw.Float64()
			if at, bt := c.At(a), c.At(b); at < 0 || at > 1 || (a < b) != (at < bt) && a != b {
				t.Fatalf("%s: %g -> %g, %g -> %g", c, a, at, b, bt)
			}
		}
	}
}

func TestPeakIsTheHighestRate(t *testing.T) {
	for _, c := range curves {
		const n = 100_000
		highest := 0.0
		for i := range n {
			from, to := float64(i)/n, float64(i+1)/n
			if span := c.At(to) - c.At(from); span > 0 {
				highest = max(highest, (to-from)/span)
			}
		}
		if math.Abs(highest-c.Peak()) > 0.01*c.Peak() {
			t.Errorf("%s: the highest rate is %g, Peak returns %g", c, highest, c.Peak())
		}
	}
	if half := Spike.At(0.5); half > 1.0/7 {
		t.Errorf("half of a spike has arrived after %g of the time", half)
	}
}

func TestPlanMatchesTheWorkload(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		c := Workload{
			Buyers: 1 + draw.IntN(3000), Bots: draw.Float64(), Curve: curves[draw.IntN(3)],
			Span:  time.Second + time.Duration(draw.Int64N(int64(time.Minute))),
			Think: time.Duration(draw.Int64N(int64(time.Second))), Retries: draw.IntN(5), Seed: draw.Uint64(),
		}
		if err := c.CheckRate(); err != nil {
			t.Fatal(c, err)
		}
		plan := c.plan()
		if !reflect.DeepEqual(plan, c.plan()) {
			t.Fatalf("%+v: two different plans", c)
		}
		bots, names, own := 0, map[string]bool{}, map[int]bool{}
		for _, a := range plan {
			names[a.Name] = true
			if a.Kind.Bot() {
				bots++
				if a.At < -botsAhead || a.At > 0 {
					t.Fatalf("a bot arrives at %s", a.At)
				}
			} else if a.At < 0 || a.At > c.Span || a.Think < 0 || a.Think > 10*c.Think {
				t.Fatalf("%+v of %+v", a, c)
			}
			if a.Kind == farm != (a.Address == farmAddress) || a.Kind != farm && own[a.Address] {
				t.Fatalf("%+v shares an address", a)
			}
			own[a.Address] = true
		}
		if len(plan) != c.Buyers || len(names) != c.Buyers || math.Abs(float64(bots)-c.Bots*float64(c.Buyers)) > 0.5 {
			t.Fatalf("%+v: %d actors with %d names, %d bots", c, len(plan), len(names), bots)
		}
		if !slices.IsSortedFunc(plan, func(a, b actor) int { return int(a.At - b.At) }) {
			t.Fatal("the plan is not sorted")
		}
	}
	a, b := Workload{Buyers: 50, Span: time.Second, Curve: Spike, Seed: 1}, Workload{
		Buyers: 50, Span: time.Second, Curve: Spike, Seed: 2,
	}
	if reflect.DeepEqual(a.plan(), b.plan()) {
		t.Error("two seeds give the same plan")
	}
}

func TestArrivalsFollowTheCurve(t *testing.T) {
	for _, curve := range curves {
		c := Workload{Buyers: 20_000, Curve: curve, Span: 10 * time.Second, Seed: 9}
		worst := 0.0
		for i, a := range c.plan() {
			worst = max(worst, math.Abs(c.Curve.At(float64(i)/float64(c.Buyers))-a.At.Seconds()/10))
		}
		if worst > 0.06 { // of the time span, where arrivals are sparse
			t.Errorf("%s: arrivals deviate by %g of the time span", curve, worst)
		}
	}
}

func TestCheckRateRejectsWhatOneMachineCannotSimulate(t *testing.T) {
	c := Workload{Buyers: 10, Span: time.Second, Curve: Spike}
	if err := c.CheckRate(); err != nil {
		t.Error(err)
	}
	c.Buyers = 20_000
	if c.CheckRate() == nil {
		t.Errorf("%+v is accepted", c)
	}
}

func TestAddressesAreUnique(t *testing.T) {
	seen, ips := map[string]bool{}, map[string]bool{}
	for i := range 100_000 {
		f, l := forwarded(i), loopback(i).String()
		if seen[f] || ips[l] || !loopback(i).IsLoopback() || l == "127.0.0.1" {
			t.Fatalf("%d: %s, %s", i, f, l)
		}
		seen[f], ips[l] = true, true
	}
}
