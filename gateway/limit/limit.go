// Package limit decides whether a request may pass, under several rules at once. Its buckets are golang.org/x/time/rate limiters in a bounded,
// sharded table, and its verdicts are those of nginx's limit_req:
//
//	e = max(0, excess - rate*dt + 1); refuse if e > burst, and write nothing; else store e and now
//
// A rate.Limiter of burst+1 tokens is that bucket seen from the other side: tokens = burst + 1 - excess. Two things are needed to make it
// exact. Time is cut to whole milliseconds, as nginx has it. And time never runs backwards: a Limiter that is asked about an instant before
// its last one takes that instant for its own and refills the difference a second time (golang/go#71360), so each shard clamps time under its lock.
//
// The bound that follows: for one key, any interval of length L admits at most rate*L + burst + 1 requests.
//
// The package decides and returns. It never sleeps, logs, or knows what a request is.
package limit

import (
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Rule is one limit with its own buckets. Its fields must not change once it is in use.
type Rule struct {
	PerSecond float64 // above 0
	Burst     int     // requests above the rate that pass; 0 or more
	Delay     bool    // requests within the burst are to be held back to the rate: see Verdict.Wait
	Shadow    bool    // never refuses; see Verdict.Over
	Lenient   bool    // lets a request pass for which there is no room for a bucket, instead of refusing it

	id uint32
}

var ruleIDs atomic.Uint32

// NewRule makes a copy of r that shares no bucket with any other rule.
func NewRule(r Rule) *Rule {
	r.id = ruleIDs.Add(1)
	return &r
}

// Ask is one rule and the key to ask it about. The unexported part is scratch space: asks may be reused, by one caller at a time.
type Ask struct {
	Rule *Rule
	Key  Key

	shard int
	at    time.Time
	found *bucket
}

// Verdict is what one rule says about one request.
type Verdict struct {
	Over      bool          // the rule refuses the request, or would if it were not a shadow
	NoRoom    bool          // the table is full of live buckets: nothing was counted
	Remaining int           // requests that would pass right after this one
	Next      time.Duration // until Remaining grows
	Wait      time.Duration // Over: until the request would pass. Else: how long a Delay rule wants the request held back
}

// judge is the verdict on one request by a bucket that holds so many tokens, before it takes one.
func (r *Rule) judge(tokens float64) Verdict {
	if lack := 1 - tokens; lack > 0 {
		// The very computation by which rate.Limiter refuses, so that what passes here passes there.
		if wait := r.span(lack); wait > 0 {
			return Verdict{Over: true, Next: wait, Wait: wait}
		}
	}
	left := max(tokens-1, 0)
	whole := math.Floor(left + 1e-9)
	v := Verdict{Remaining: int(whole), Next: r.span(max(whole+1-left, 0))}
	if held := float64(r.Burst) - left; r.Delay && held > 0 {
		v.Wait = r.span(held)
	}
	return v
}

// span is how long so many tokens take to come.
func (r *Rule) span(tokens float64) time.Duration {
	seconds := tokens / r.PerSecond * float64(time.Second)
	if seconds > math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(seconds)
}

func (r *Rule) limiter() *rate.Limiter { return rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst+1) }
