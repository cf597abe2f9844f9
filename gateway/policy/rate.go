package policy

import (
	"math"
	"strconv"
	"time"
)

// Rate is a number of requests per time span.
type Rate struct {
	Requests float64
	Per      time.Duration
}

// PerSecond returns the rate in requests per second.
func (r Rate) PerSecond() float64 { return r.Requests / r.Per.Seconds() }

// String returns the rate as a policy writes it, such as "20r/s".
func (r Rate) String() string {
	unit := map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h"}[r.Per]
	return strconv.FormatFloat(r.Requests, 'f', -1, 64) + "r/" + unit
}

const (
	maxBacklog = 1 << 53 // the backlog of a bucket is an integer below this: see Fraction
	maxCount   = 1_000_000_000
)

// Fraction returns the rate as count requests in period microseconds, in lowest terms. The limiters of both edges
// store a backlog as an integer in which one request is period. A rate with more than nine digits is rounded down, so
// that the bound holds. lua/edge/sluice/policy/rate.lua computes the same.
func (r Rate) Fraction() (count, period int64) {
	scale := 1.0
	for f := r.Requests; scale < 1e6 && f*scale != math.Trunc(f*scale); {
		scale *= 10
	}
	n, d := math.Round(r.Requests*scale), float64(r.Per.Microseconds())*scale
	common := gcd(n, d)
	n, d = n/common, d/common
	if n > maxCount {
		over := n / maxCount
		n, d = math.Floor(n/over), math.Ceil(d/over)
	}
	return int64(n), int64(d)
}

func gcd(a, b float64) float64 {
	for b > 0 {
		a, b = b, math.Mod(a, b)
	}
	return a
}
