// Package fleetlimit shares one rate limit among all edges of a fleet (ADR 47). Time is divided into slots, one for
// each request that the rate permits. An edge leases slots ahead from Redis and spends one for each request that it
// admits, within a window around the instant of the slot. Therefore any interval of length L admits at most
// rate*L + burst + 1 requests over all edges. No clock of an edge is part of that bound.
//
// Bucket decides for one key of one edge, as a pure function of time. Client leases from Redis. Limiter joins both for
// the Go edge, and Server leases for the workers of nginx; lua/edge/sluice/fleet decides as Bucket does.
package fleetlimit

import "fmt"

// Rule is a limit of a policy with the scope of the fleet. The zero value is not valid: see NewRule.
type Rule struct {
	name     string  // of the rule in keys of Redis
	interval float64 // us between two slots
	window   float64 // us before the instant of a slot in which it may be spent
	ahead    float64 // us beyond the window that a lease may reach
	lanes    int     // a lease has slots of whole lanes; every lanes-th slot belongs to the same one
}

// Bounds of leases.
const (
	maxLanes   = 16
	leaseSlots = 256       // slots of a lease that are sufficient for few round trips
	minAhead   = 1_000_000 // us
	maxAhead   = 24_000_000

	// rounding covers what the instants of slots lose as 64-bit floating-point numbers of microseconds since 1970.
	rounding = 2

	// drift bounds how much faster or slower than the clock of Redis the monotonic clock of an edge may run.
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
