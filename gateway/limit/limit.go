// Package limit decides whether a request may pass under several rate limits together. Its buckets are stored in a
// bounded, sharded table. Its verdicts are those of nginx's limit_req, computed with integers (the generic cell rate
// algorithm):
//
//	e = max(0, excess - rate*dt + 1); refuse if e > burst, and change nothing; otherwise store e and the time
//
// Therefore, for one key, any interval of length L admits at most rate*L + burst + 1 requests.
//
// The arithmetic is the same as in the nginx edge (lua/edge/sluice/limit/gcra.lua). golang.org/x/time/rate decides
// the same as far as floating point permits, and requires a clock that never runs backwards (golang/go#71360);
// docs/adr/0010 has the comparison.
//
// The package neither sleeps nor logs, and does not depend on HTTP.
package limit

import (
	"math"
	"sync/atomic"
	"time"
)

// Instant is a time in microseconds of a clock that all callers of a table share.
type Instant int64

// Rule is a rate limit with its own buckets. It must not be changed while it is in use.
type Rule struct {
	Count    int64 // requests per Period; positive
	Period   int64 // in microseconds; positive; (Burst+1)*Period must be below 2^62
	Burst    int   // requests above the rate that pass; not negative
	Delay    bool  // requests within the burst are delayed to the rate: see Verdict.Wait
	Shadow   bool  // never refuses: see Verdict.Over
	FailOpen bool  // admits a request if the table has no free bucket, instead of refusing it

	id uint32
}

var ruleIDs atomic.Uint32

// NewRule returns a copy of r that shares no buckets with another rule.
func NewRule(r Rule) *Rule {
	r.id = ruleIDs.Add(1)
	return &r
}

// Inherit returns a copy of r that shares the buckets of old, so that a changed rule does not reset them. Count and
// Period must be equal to those of old.
func Inherit(old *Rule, r Rule) *Rule {
	r.id = old.id
	return &r
}

// Check is a rule, the key to check, and the verdict. It contains scratch space, and may be reused by one caller at a
// time.
type Check struct {
	Rule    *Rule
	Key     Key
	Verdict Verdict // of Table.Take or Table.Peek

	shard   int
	now     Instant
	exists  bool  // the bucket
	backlog int64 // before this request
}

// Verdict is the result of one rule for one request.
type Verdict struct {
	Over      bool          // the request exceeds the limit, and is refused unless the rule is a shadow
	Full      bool          // the table has no free bucket: the request was not counted
	Remaining int           // requests that would pass immediately after this one
	Next      time.Duration // until Remaining increases
	Wait      time.Duration // if Over, until the request would pass; otherwise the delay required by a Delay rule
}

// evaluate returns the verdict for a request, given the backlog of the bucket before it.
func (r *Rule) evaluate(backlog int64) Verdict {
	room := int64(r.Burst)*r.Period - backlog
	if room < 0 {
		wait := r.drainTime(-room)
		return Verdict{Over: true, Next: wait, Wait: wait}
	}
	v := Verdict{Remaining: int(room / r.Period), Next: r.drainTime(r.Period - room%r.Period)}
	if r.Delay {
		v.Wait = r.drainTime(backlog)
	}
	return v
}

// drainTime returns the time in which a backlog leaves the bucket, rounded up to a microsecond.
func (r *Rule) drainTime(backlog int64) time.Duration {
	us := backlog / r.Count
	if backlog%r.Count > 0 {
		us++
	}
	if us > math.MaxInt64/int64(time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(us) * time.Microsecond
}
