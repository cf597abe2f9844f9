package rehearsal

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// The bounds of a crowd, of what one machine can play.
const (
	MaxBuyers = 500_000
	MaxSpan   = 30 * time.Minute
	MaxRate   = 50_000 // arrivals a second at the peak
)

// Crowd says who comes. The same Crowd is the same plan, to the microsecond, whenever and wherever it is drawn.
type Crowd struct {
	Buyers  int           // in all, bots included
	Bots    float64       // share of them that are bots, in [0, 1]
	Curve   Curve         // of the people; bots come just before the opening
	Span    time.Duration // in which people come, from the opening on
	Think   time.Duration // mean time between seeing the sale and wanting it; it varies as times between rare events do
	Retries int           // how often a person asks again who is told to come back, or gets no answer
	Seed    uint64
}

// Check tells everything that is wrong with a crowd.
func (c Crowd) Check() error {
	var bad []error
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			bad = append(bad, fmt.Errorf(format, args...))
		}
	}
	add(c.Buyers < 1 || c.Buyers > MaxBuyers, "--buyers must be between 1 and %d", MaxBuyers)
	add(!(c.Bots >= 0 && c.Bots <= 1), "--bots must be between 0 and 1, the share of buyers that are bots")
	add(c.Span < 100*time.Millisecond || c.Span > MaxSpan, "--span must be between 100ms and %s", MaxSpan)
	add(c.Think < 0 || c.Think > time.Minute, "--think must be between 0s and 1m")
	add(c.Retries < 0 || c.Retries > 100, "--retries must be between 0 and 100")
	if len(bad) == 0 {
		add(c.PeakRate() > MaxRate, "%d buyers within %s are %.0f arrivals a second at the peak: one machine plays at most %d", c.Buyers, c.Span, c.PeakRate(), MaxRate)
	}
	return errors.Join(bad...)
}

// PeakRate is how many people come in the busiest second.
func (c Crowd) PeakRate() float64 {
	return float64(c.people()) / c.Span.Seconds() * c.Curve.Peak()
}

func (c Crowd) bots() int   { return int(float64(c.Buyers)*c.Bots + 0.5) }
func (c Crowd) people() int { return c.Buyers - c.bots() }

// Kind is what somebody in a crowd does.
type Kind int

// The kinds.
const (
	Person   Kind = iota // looks, thinks, buys, waits when told to, and then for the order
	Farm                 // one of many buyers at one address, who ask again at once
	Repeater             // one buyer who asks again at once, each time from another address
	Forger               // sends tokens that nobody signed
)

func (k Kind) String() string { return [...]string{"person", "farm", "repeater", "forger"}[k] }

// Bot tells whether nobody would miss this one.
func (k Kind) Bot() bool { return k != Person }

const (
	// botTries is how many requests a bot sends, and botPause the time between two: it does not wait to be told, and does not heed Retry-After.
	botTries = 20
	botPause = 100 * time.Millisecond
	// botsAhead is how long before the opening bots begin.
	botsAhead = time.Second
	// farmAddress is where all of a farm sit.
	farmAddress = 0
)

// Actor is one of the crowd.
type Actor struct {
	At      time.Duration // when it comes, from the opening; bots come before it
	Kind    Kind
	Name    string
	Address int           // which of the crowd's addresses is its own
	Think   time.Duration // a person's
	Patient bool          // a person who waits for the order to be a row
}

// Plan draws everybody, in the order in which they come. The crowd must be checked.
func (c Crowd) Plan() []Actor {
	draw := rand.New(rand.NewPCG(c.Seed, 0x736c75696365)) //nolint:gosec // it must be drawn again from the same seed
	actors := make([]Actor, 0, c.Buyers)
	for i := range c.Buyers {
		a := Actor{Name: strconv.Itoa(i), Address: i + 1}
		if i < c.bots() {
			a.Kind = Farm + Kind(i%3)
			a.At = time.Duration((draw.Float64() - 1) * float64(botsAhead))
			if a.Kind == Farm {
				a.Address = farmAddress
			}
		} else {
			a.At = time.Duration(c.Curve.At(draw.Float64()) * float64(c.Span))
			a.Think = min(time.Duration(draw.ExpFloat64()*float64(c.Think)), 10*c.Think)
			a.Patient = draw.IntN(4) == 0
		}
		actors = append(actors, a)
	}
	slices.SortStableFunc(actors, func(a, b Actor) int { return cmp.Compare(a.At, b.At) })
	return actors
}
