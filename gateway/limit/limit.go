// Package limit decides whether a request may pass, under several rules at once. Its buckets are in a bounded, sharded table, and its verdicts are those
// of nginx's limit_req, computed in whole numbers:
//
//	e = max(0, excess - rate*dt + 1); refuse if e > burst, and write nothing; else store e and now
//
// The bound that follows: for one key, any interval of length L admits at most rate*L + burst + 1 requests.
//
// It is the arithmetic of the nginx edge, lua/edge/sluice/limit/gcra.lua, number for number. golang.org/x/time/rate says the same where its floating
// point is exact enough, and needs a clock that it is told never to run back (golang/go#71360): docs/adr/0010 has the comparison.
//
// The package decides and returns. It never sleeps, logs, or knows what a request is.
package limit

import (
	"math"
	"sync/atomic"
	"time"
)

// Instant is a time in microseconds, of a clock that all callers of a table share.
type Instant int64

// Rule is one limit with its own buckets. Its fields must not change once it is in use.
type Rule struct {
	Count   int64 // so many requests, above 0
	Period  int64 // in so many microseconds, above 0. (Burst+1)*Period must be below 2^62
	Burst   int   // requests above the rate that pass; 0 or more
	Delay   bool  // requests within the burst are to be held back to the rate: see Verdict.Wait
	Shadow  bool  // never refuses; see Verdict.Over
	Lenient bool  // lets a request pass for which there is no room for a bucket, instead of refusing it

	id uint32
}

var ruleIDs atomic.Uint32

// NewRule makes a copy of r that shares no bucket with any other rule.
func NewRule(r Rule) *Rule {
	r.id = ruleIDs.Add(1)
	return &r
}

// Heir makes a copy of r that goes on with old's buckets, as they are: who has used up his share under old has used it up under the heir. Count and Period
// must be old's.
func Heir(old *Rule, r Rule) *Rule {
	r.id = old.id
	return &r
}

// Ask is one rule and the key to ask it about. The unexported part is scratch space: asks may be reused, by one caller at a time.
type Ask struct {
	Rule *Rule
	Key  Key

	shard   int
	now     Instant
	found   *bucket
	backlog int64 // before this request
}

// Verdict is what one rule says about one request.
type Verdict struct {
	Over      bool          // the rule refuses the request, or would if it were not a shadow
	NoRoom    bool          // the table is full of live buckets: nothing was counted
	Remaining int           // requests that would pass right after this one
	Next      time.Duration // until Remaining grows
	Wait      time.Duration // Over: until the request would pass. Else: how long a Delay rule wants the request held back
}

// judge is the verdict on one request by a bucket that holds so much, before it takes one.
func (r *Rule) judge(backlog int64) Verdict {
	room := int64(r.Burst)*r.Period - backlog
	if room < 0 {
		wait := r.span(-room)
		return Verdict{Over: true, Next: wait, Wait: wait}
	}
	v := Verdict{Remaining: int(room / r.Period), Next: r.span(r.Period - room%r.Period)}
	if r.Delay {
		v.Wait = r.span(backlog)
	}
	return v
}

// span is how long so much takes to leave the bucket, rounded up to a microsecond: whoever returns after it is not too early.
func (r *Rule) span(backlog int64) time.Duration {
	us := backlog / r.Count
	if backlog%r.Count > 0 {
		us++
	}
	if us > math.MaxInt64/int64(time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(us) * time.Microsecond
}
