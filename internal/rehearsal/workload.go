package rehearsal

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// MaxBuyers is the largest number of buyers that have addresses of their own.
const MaxBuyers = 500_000

// Workload defines the simulated buyers. Equal workloads have equal plans.
type Workload struct {
	Buyers  int           // including bots; from 1 to MaxBuyers
	Bots    float64       // share of bots, in [0, 1]
	Curve   Curve         // arrivals of shoppers; bots arrive just before the opening
	Span    time.Duration // from the opening; all shoppers arrive within it; positive
	Think   time.Duration // mean time between the page view and the purchase; exponentially distributed; not negative
	Retries int           // of a shopper, after a refusal with Retry-After or without a response
	Seed    uint64
}

// maxRate is the number of arrivals per second that one machine can simulate.
const maxRate = 50_000

// CheckRate returns an error if one machine cannot simulate the peak.
func (c Workload) CheckRate() error {
	if rate := c.PeakRate(); c.Span > 0 && rate > maxRate {
		return fmt.Errorf("%d buyers within %s are %.0f arrivals per second at the peak: one machine simulates at most %d",
			c.Buyers, c.Span, rate, maxRate)
	}
	return nil
}

// PeakRate returns the arrivals of shoppers per second at the peak.
func (c Workload) PeakRate() float64 {
	return float64(c.shoppers()) / c.Span.Seconds() * c.Curve.Peak()
}

func (c Workload) bots() int     { return int(float64(c.Buyers)*c.Bots + 0.5) }
func (c Workload) shoppers() int { return c.Buyers - c.bots() }

type kind int

// The kinds.
const (
	shopper  kind = iota // views the sale, thinks, buys, follows Retry-After, and may wait for the order
	farm                 // one of many buyers at one address; retries immediately
	repeater             // retries immediately, each time from another address
	forger               // sends tokens with an invalid signature
)

// Bot reports whether it is a bot.
func (k kind) Bot() bool { return k != shopper }

const (
	// A bot sends botTries requests, one every botPause. It ignores Retry-After.
	botTries = 20
	botPause = 100 * time.Millisecond
	// botsAhead is how long before the opening bots arrive.
	botsAhead = time.Second
	// farmAddress is the address of all farm bots.
	farmAddress = 0
)

type actor struct {
	At      time.Duration // arrival, relative to the opening; negative for bots
	Kind    kind
	Name    string
	Address int           // number of its source address
	Think   time.Duration // of a shopper
	Patient bool          // a shopper that waits until the order is a row
}

// plan generates all actors, ordered by arrival. The workload must be valid.
func (c Workload) plan() []actor {
	draw := rand.New(rand.NewPCG(c.Seed, 0x736c75696365)) //nolint:gosec // must be reproducible from the seed
	actors := make([]actor, 0, c.Buyers)
	for i := range c.Buyers {
		a := actor{Name: strconv.Itoa(i), Address: i + 1}
		if i < c.bots() {
			a.Kind = farm + kind(i%3)
			a.At = time.Duration((draw.Float64() - 1) * float64(botsAhead))
			if a.Kind == farm {
				a.Address = farmAddress
			}
		} else {
			a.At = time.Duration(c.Curve.At(draw.Float64()) * float64(c.Span))
			a.Think = min(time.Duration(draw.ExpFloat64()*float64(c.Think)), 10*c.Think)
			a.Patient = draw.IntN(4) == 0
		}
		actors = append(actors, a)
	}
	slices.SortStableFunc(actors, func(a, b actor) int { return cmp.Compare(a.At, b.At) })
	return actors
}

// Curve is the distribution of arrivals over time.
type Curve string

// The curves.
const (
	Spike   Curve = "spike"   // the rate is highest at the opening, and decays
	Uniform Curve = "uniform" // the rate is constant
	Ramp    Curve = "ramp"    // the rate increases from zero
)

// decay is the exponent by which the rate of a spike decreases. With 5, half of the shoppers arrive in the first
// seventh of the time.
const decay = 5

// At returns the time by which a share u of the shoppers has arrived, as a share of the time span; both are in [0, 1].
func (c Curve) At(u float64) float64 {
	switch c {
	case Uniform:
		return u
	case Ramp:
		return math.Sqrt(u)
	default:
		return min(1, -math.Log1p(-u*(1-math.Exp(-decay)))/decay)
	}
}

// Peak returns the ratio of the highest to the mean rate.
func (c Curve) Peak() float64 {
	switch c {
	case Uniform:
		return 1
	case Ramp:
		return 2
	default:
		return decay / (1 - math.Exp(-decay))
	}
}
