package fleetlimit

import "math"

// Outcome is the decision about one request.
type Outcome int

// The outcomes.
const (
	Admitted    Outcome = iota // a slot was spent
	Refused                    // no slot: neither here nor in Redis
	Unavailable                // Redis cannot be used: on_error of the rule decides
	Ask                        // lease Ask, apply the lease, and decide again
	Wait                       // a lease of this bucket is in progress: decide again when it has ended
)

// Demand is what a bucket leases.
type Demand struct {
	Lanes int // from 1
	Slots int // of each lane, from 1

	target int // slots, with those of the lanes that the bucket holds
}

// Verdict is the result of Bucket.Take.
type Verdict struct {
	Outcome Outcome
	Wait    float64 // Refused: us until a slot may be free
	Poll    bool    // Refused: lease Demand without waiting for it
	Demand  Demand  // Ask and Poll
	spent   segment // Admitted: the slot
}

// Segment is the leased slots of one lane. Times are us of the monotonic clock of the edge. The next slot may be spent
// from Opens to Closes; each slot after it OpensStep and ClosesStep later.
type Segment struct {
	Opens, OpensStep   float64
	Closes, ClosesStep float64
	N                  int // slots left

	Lane   int
	Next   float64 // the number of the next slot
	Stride int     // between slots
	ID     string  // of the lease; "" for a slot that cannot be returned
}

type segment = Segment

// spend removes the next slot.
func (s *Segment) spend() {
	s.Opens += s.OpensStep
	s.Closes += s.ClosesStep
	s.Next += float64(s.Stride)
	s.N--
}

// expire removes the slots that have closed.
func (s *Segment) expire(now float64) {
	if s.N == 0 || s.Closes >= now {
		return
	}
	n := min(s.N, int(math.Ceil((now-s.Closes)/s.ClosesStep)))
	s.Opens += float64(n) * s.OpensStep
	s.Closes += float64(n) * s.ClosesStep
	s.Next += float64(n * s.Stride)
	s.N -= n
}

// end is the first slot after the segment.
func (s *Segment) end() float64 { return s.Next + float64(s.N*s.Stride) }

// Lease is the answer of Redis in the clock of the edge.
type Lease struct {
	Redis    float64 // us since 1970 on the clock of Redis
	Further  float64 // us until Redis may have a further slot
	Starting bool    // refused, because slots may have been leased before this server started
	Segments []Segment
}

// Bucket is what an edge holds of one key. The zero value holds nothing. Not safe for concurrent use.
type Bucket struct {
	segments []Segment

	retry    float64 // Redis has no further slot until then
	starting bool    // it may have slots, but does not know

	asking    float64 // a lease is in progress, at most until then
	asked     float64 // time of the last lease; 0: none
	decisions int     // since then
	slots     int     // target of the last lease
	redis     float64 // Lease.Redis of the last lease
	used      float64 // time of the last decision

	above   float64 // the fleet is above the limit, as far as known, until then
	penalty float64 // us for which it was, after the last lease

	since float64 // the demand of the edge: decisions from this time
	seen  int
}

const (
	// unknownWait is reported to a client if the edge may not ask for slots yet.
	unknownWait = 1_000_000

	askLimit = 1_000_000 // us that a lease may be in progress

	// A lease is to be sufficient for so many decisions, and for so many us.
	leaseDecisions = 256
	leaseTime      = 20_000.0
	calmTime       = 1_000_000.0 // us, at most, below the limit

	// pollDecisions is how many requests are refused without a lease, before Redis is asked whether it has slots
	// again, that another edge has returned.
	pollDecisions = 64
	restDecisions = 16

	// The demand is that of the last decisions: after so many, or after such a time, half of them are forgotten.
	recentDecisions = 512
	recentTime      = 8_000_000

	coldAfter = 10_000_000 // us without a request, after which the demand is unknown
)

// Count counts a request, at this time, in us of the monotonic clock. Call it once before the first Take for a request.
func (b *Bucket) Count(now float64) {
	if now-b.used > coldAfter {
		b.since, b.seen, b.slots = now, 0, 0
	}
	if b.seen >= recentDecisions || now-b.since > recentTime && b.seen > 1 {
		b.since, b.seen = now-(now-b.since)/2, b.seen/2
	}
	b.used = now
	b.seen++
	b.decisions++
}

// Take decides about a request at this time.
func (b *Bucket) Take(r *Rule, now float64) Verdict {
	best := -1
	opens := math.Inf(1)
	live := b.segments[:0]
	for _, s := range b.segments {
		if s.expire(now); s.N == 0 {
			continue
		}
		live = append(live, s)
		if s.Opens > now {
			opens = min(opens, s.Opens)
		} else if i := len(live) - 1; best < 0 || s.Closes < live[best].Closes {
			best = i
		}
	}
	b.segments = live
	if best >= 0 {
		v := Verdict{Outcome: Admitted, spent: b.segments[best]}
		b.segments[best].spend()
		return v
	}
	if b.asking > now && now >= b.retry {
		return Verdict{Outcome: Wait}
	}
	if now < b.retry {
		if b.starting {
			return Verdict{Outcome: Unavailable}
		}
		v := Verdict{Outcome: Refused, Wait: min(opens, b.retry) - now}
		if b.decisions >= pollDecisions && b.asking <= now {
			v.Demand = b.demand(r, now)
			v.Poll = v.Demand.Lanes > 0
		}
		return v
	}
	d := b.demand(r, now)
	if d.Lanes == 0 {
		return Verdict{Outcome: Refused, Wait: min(opens-now, unknownWait)}
	}
	return Verdict{Outcome: Ask, Demand: d}
}

// demand returns what to lease. Below the limit that is what the edge needs for a short time, and a little more, because
// the slots that it holds are missing at other edges. Above the limit, where this edge refuses requests, it is less than
// the edge could spend, so that no slot is left over, and for a long time, so that refusals need few leases.
func (b *Bucket) demand(r *Rule, now float64) Demand {
	if b.asked == 0 {
		return Demand{Lanes: 1, Slots: 1}
	}
	rate := float64(b.seen) / max(now-b.since, 1) // per us
	share := rate * r.interval * float64(r.lanes) // in lanes
	growth := 2 * max(b.slots, 1)
	span, above := calmTime, now < b.above
	if above {
		share, span = 0.8*share, r.ahead+r.window
	} else {
		share *= 1.1
	}
	rested := b.decisions >= pollDecisions || now-b.asked > r.ahead
	held, longest := b.held(now)
	if above && (b.decisions < restDecisions || (held > 0 || share < 1) && !rested || held > 0 && int(share) <= held) {
		return Demand{}
	}
	if share < 2 && !above || share < 1 {
		n := min(max(int(share*r.window/(r.interval*float64(r.lanes))), 1), r.lanes, growth)
		return Demand{Lanes: n, Slots: 1, target: n}
	}
	lanes := min(int(share), r.lanes)
	span = min(max(leaseDecisions/rate, leaseTime), span)
	slots := max(min(int(span/(r.interval*float64(r.lanes))), growth/lanes), 1)
	target := lanes * slots
	if held > 0 {
		lanes, slots = max(lanes-held, 1), min(slots, longest)
	}
	return Demand{Lanes: min(lanes, growth), Slots: slots, target: target}
}

// held returns the lanes with slots that open later, and the number of these slots in one of them.
func (b *Bucket) held(now float64) (lanes, longest int) {
	for _, s := range b.segments {
		if s.N > 0 && s.Opens > now {
			lanes++
			longest = max(longest, s.N)
		}
	}
	return lanes, longest
}

// Begin records that a lease has begun.
func (b *Bucket) Begin(d Demand, now float64) {
	b.asking = now + askLimit
	b.slots = max(d.target, 1)
}

// Apply adds a lease.
func (b *Bucket) Apply(r *Rule, l Lease, now float64) {
	if l.Redis < b.redis { // the clock of Redis was set back
		b.segments = b.segments[:0]
	}
	b.redis = l.Redis
	b.segments = append(b.segments, l.Segments...)
	b.retry, b.starting = now+l.Further, l.Starting
	if l.Further == 0 {
		b.penalty = 0
	} else {
		b.penalty = min(max(2*b.penalty, r.window, leaseTime), r.ahead+r.window)
		b.above = now + b.penalty
		for _, s := range l.Segments {
			b.above = max(b.above, s.Closes+float64(s.N)*s.ClosesStep+b.penalty)
		}
	}
	b.asking, b.asked, b.decisions = 0, now, 0
}

// Fail records that a lease has failed. What Redis may have leased is spent.
func (b *Bucket) Fail() { b.asking = 0 }

// Refund takes back the slot of an admitted request that another rule has refused.
func (b *Bucket) Refund(v Verdict) {
	s := v.spent
	s.N, s.ID = 1, ""
	b.segments = append(b.segments, s)
}

// Return removes the slots that can be returned to Redis. A lane that was leased twice is one segment, if that is
// possible: Redis compares the end of the last lease only.
func (b *Bucket) Return(now float64) (returned []Segment) {
	for _, s := range b.segments {
		if s.expire(now); s.N == 0 || s.ID == "" {
			continue
		}
		joined := false
		for i := range returned {
			if r := &returned[i]; r.Lane == s.Lane && r.end() == s.Next {
				r.N += s.N
				r.ID, joined = s.ID, true
			}
		}
		if !joined {
			returned = append(returned, s)
		}
	}
	b.segments = nil
	return returned
}

// Idle reports whether the edge needs its slots no longer: it has not decided for some time.
func (b *Bucket) Idle(now float64) bool {
	gap := 0.0
	if b.decisions > 0 {
		gap = (b.used - b.asked) / float64(b.decisions)
	}
	return now-b.used > min(max(8*gap, 1_000_000), 5_000_000)
}

// Empty reports whether the bucket is like a new one.
func (b *Bucket) Empty(now float64) bool {
	return len(b.segments) == 0 && b.asking <= now && now >= b.retry && now-b.used > coldAfter
}
