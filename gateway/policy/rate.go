package policy

import (
	"math"
	"time"
)

// Rate is so many requests in a span of time.
type Rate struct {
	Requests float64
	Per      time.Duration
}

// PerSecond is the rate in requests per second.
func (r Rate) PerSecond() float64 { return r.Requests / r.Per.Seconds() }

const (
	maxBacklog = 1 << 53 // a bucket counts in whole numbers below this, see fraction
	maxCount   = 1_000_000_000
)

// fraction is the rate as the nginx edge counts it, count requests in period microseconds in lowest terms: it keeps what is in a bucket as a
// whole number of which one request is period. lua/edge/sluice/policy/rate.lua is the same computation.
func (r Rate) fraction() (count, period float64) {
	scale := 1.0
	for f := r.Requests; scale < 1e6 && f*scale != math.Trunc(f*scale); {
		scale *= 10
	}
	count, period = math.Round(r.Requests*scale), float64(r.Per.Microseconds())*scale
	common := gcd(count, period)
	count, period = count/common, period/common
	if count > maxCount {
		over := count / maxCount
		count, period = math.Floor(count/over), math.Ceil(period/over)
	}
	return count, period
}

func gcd(a, b float64) float64 {
	for b > 0 {
		a, b = b, math.Mod(a, b)
	}
	return a
}
