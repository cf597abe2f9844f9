// Package fleetlimit shares one rate limit among all edges of a fleet (ADR 47). Time is divided into slots, one for
// each request that the rate permits. An edge leases slots ahead from Redis and spends one for each request that it
// admits, within a window around the instant of the slot. Therefore all edges together admit at most rate*L + burst + 1
// requests in any interval of length L. This bound does not depend on the clock of any edge.
//
// Bucket decides for one key of one edge, as a pure function of time. Client leases from Redis. Limiter joins both for
// the Go edge, and Server leases for the workers of nginx; lua/edge/sluice/fleet decides as Bucket does.
package fleetlimit

import "fmt"

// Rule is a limit of a policy with the scope of the fleet. The zero value is not valid: see NewRule.
type Rule struct {
	name     string  // the rule's name in keys of Redis
	interval float64 // us between two slots
	window   float64 // a slot may be spent from this many us before its instant
	ahead    float64 // us by which a lease may reach beyond the window
	lanes    int     // a lease has slots of whole lanes; every lanes-th slot belongs to one lane
}

// Bounds of leases.
const (
	maxLanes   = 16
	leaseSlots = 256       // slots of a lease, enough to make round trips rare
	minAhead   = 1_000_000 // us
	maxAhead   = 24_000_000

	// rounding, in us, covers the rounding of slot instants: 64-bit floating-point microseconds since 1970.
	rounding = 2

	// drift bounds the rate difference between the monotonic clock of an edge and the clock of Redis.
	drift = 1.0 / 1024
)

// NewRule returns the rule of count requests in period us with this burst. id distinguishes the limit in Redis: it
// contains no "}", and differs between rules that count different requests.
func NewRule(id string, count, period int64, burst int) *Rule {
	interval := float64(period) / float64(count)
	return &Rule{
		name:     fmt.Sprintf("%s:%d/%d:%d", id, count, period, burst),
		interval: interval,
		window:   max(float64(burst)*interval-rounding, 0),
		ahead:    min(max(leaseSlots*interval, minAhead), maxAhead),
		lanes:    min(max(burst/2, 1), maxLanes),
	}
}
