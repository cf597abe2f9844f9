package rehearsal

import (
	"fmt"
	"math"
	"strings"
)

// Curve is how arrivals are spread over the time in which people come.
type Curve string

// The curves.
const (
	Spike   Curve = "spike"   // everybody waits for the opening: the rate is highest then, and decays
	Uniform Curve = "uniform" // the same rate all the time
	Ramp    Curve = "ramp"    // the rate grows from nothing
)

// decay is how many times the rate of a spike falls by e. With 5, half of all come in the first seventh of the time.
const decay = 5

// ParseCurve reads the name of a curve.
func ParseCurve(name string) (Curve, error) {
	switch c := Curve(strings.ToLower(name)); c {
	case Spike, Uniform, Ramp:
		return c, nil
	}
	return "", fmt.Errorf("%q: want %s, %s or %s", name, Spike, Uniform, Ramp)
}

// At is the moment, as a share of the time, by which a share u of all has come; both are in [0, 1].
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

// Peak is the highest rate, in units of the mean one.
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
