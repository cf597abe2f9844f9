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
	unusable bool    // or it cannot be used: it does not know its slots, or has answered too late
	pause    float64 // us for which it is not called if a further lease is late; 0: the last was not late

	asking    float64 // a lease is in progress, at most until then
	asked     float64 // time of the last lease; 0: none
	decisions int     // since then
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

	// A lease that arrives too late to be spent is repeated. The second in a row stops leases for twice the time that the
	// first took, or for the time that it took itself, and each further one doubles the pause.
	latePause = 1_000_000 // us, at most

	// A lease is to be sufficient for so many decisions, and for so many us.
	leaseDecisions = 256
	leaseTime      = 20_000.0
	calmTime       = 1_000_000.0 // us, at most, below the limit

	// pollDecisions is how many requests are refused without a lease, before Redis is called for slots that another edge
	// has returned or left. After pollTime, fewer are sufficient: slots that no edge leases within a window are lost.
	pollDecisions = 64
	restDecisions = 16
	pollTime      = 1_000_000 // us

	// The demand is that of the last decisions: after so many, or after such a time, half of them are forgotten.
	recentDecisions = 512
	recentTime      = 8_000_000

	coldAfter = 10_000_000 // us without a request, after which the demand is unknown
)

// Count counts a request, at this time, in us of the monotonic clock. Call it once before the first Take for a request.
func (b *Bucket) Count(now float64) {
	if now-b.used > coldAfter {
		b.since, b.seen = now, 0
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
		if b.unusable {
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
		if b.unusable {
			return Verdict{Outcome: Unavailable}
		}
		return Verdict{Outcome: Refused, Wait: min(opens-now, unknownWait)}
	}
	return Verdict{Outcome: Ask, Demand: d}
}

// demand returns what to lease, at most for as many decisions as the edge has counted recently. Below the limit that is
// what the edge needs for a short time, and a little more, because the slots that it holds are missing at other edges.
// Above the limit, where this edge refuses requests, it is less than the edge could spend, so that no slot is left
// over, and for a long time, so that refusals need few leases. An edge that cannot spend a lane leases slots of one for
// as many requests as it expects in a window: slots of several lanes would close one after the other.
func (b *Bucket) demand(r *Rule, now float64) Demand {
	recent := max(b.seen, 1)
	rate := float64(recent) / max(now-b.since, 1) // per us
	share := rate * r.interval * float64(r.lanes) // in lanes
	span, above := calmTime, now < b.above
	held, longest := b.held(now)
	if above {
		share, span = 0.8*share, r.ahead+r.window
		waited := now-b.asked > pollTime
		rested := waited || b.decisions >= pollDecisions
		if b.decisions < restDecisions && !waited || (held > 0 || share < 1) && !rested || held > 0 && int(share) <= held {
			return Demand{}
		}
	} else {
		share *= 1.1
	}
	if share < 2 && !above || share < 1 {
		n := int(share * r.window / (r.interval * float64(r.lanes)))
		return Demand{Lanes: 1, Slots: min(max(n, 1), recent)}
	}
	lanes := min(int(share), r.lanes, recent)
	span = min(max(leaseDecisions/rate, leaseTime), span)
	slots := max(min(int(span/(r.interval*float64(r.lanes))), recent/lanes), 1)
	if held > 0 {
		lanes, slots = max(lanes-held, 1), min(slots, longest)
	}
	return Demand{Lanes: lanes, Slots: slots}
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
func (b *Bucket) Begin(now float64) { b.asking = now + askLimit }

// Apply adds a lease, and returns how it ended.
func (b *Bucket) Apply(r *Rule, l Lease, now float64) Result {
	if l.Redis < b.redis { // the clock of Redis was set back
		b.segments = b.segments[:0]
	}
	b.redis = l.Redis
	b.retry = now + l.Further
	last, result := now, None
	for _, s := range l.Segments {
		last = max(last, s.Closes+float64(s.N)*s.ClosesStep)
		if s.expire(now); s.N > 0 && s.Opens <= s.Closes {
			b.segments, result = append(b.segments, s), Granted
		}
	}
	switch trip := now - (b.asking - askLimit); {
	case result == Granted, len(l.Segments) == 0 && trip < r.window:
		b.pause = 0 // a lease of this round trip could be spent
	case len(l.Segments) > 0:
		repeated := b.pause > 0
		b.pause, result = min(max(2*b.pause, trip), latePause), Late
		if repeated {
			b.retry = max(b.retry, now+b.pause)
		}
	}
	b.unusable = l.Starting || b.pause > 0 // a slot may be missing because late leases have wasted it
	if l.Further == 0 || b.pause > 0 {
		b.penalty = 0
	} else {
		b.penalty = min(max(2*b.penalty, r.window, leaseTime), r.ahead+r.window)
		b.above = last + b.penalty
	}
	b.asking, b.asked, b.decisions = 0, now, 0
	return result
}

// Fail records that a lease has failed. What Redis may have leased is spent.
func (b *Bucket) Fail() { b.asking = 0 }

// Refund takes back the slot of an admitted request that another rule has refused.
func (b *Bucket) Refund(v Verdict) {
	s := v.spent
	s.N, s.ID = 1, ""
	b.segments = append(b.segments, s)
}

// Return removes the slots of lanes of which a slot has opened before this time, and returns what can be returned to
// Redis. A lane that was leased twice is one segment, if that is possible: Redis compares the end of the last lease
// only.
func (b *Bucket) Return(now, before float64) (returned []Segment) {
	var kept []Segment
	for _, s := range b.segments {
		if s.expire(now); s.N == 0 {
			continue
		}
		joined := false
		for i := range returned {
			if r := &returned[i]; r.Lane == s.Lane && r.end() == s.Next && s.ID != "" {
				r.N += s.N
				r.ID, joined = s.ID, true
			}
		}
		switch {
		case joined:
		case s.ID == "" || s.Opens > before:
			kept = append(kept, s)
		default:
			returned = append(returned, s)
		}
	}
	b.segments = kept
	return returned
}

// Unused returns the time before which a slot of a lane that the edge does not need has opened. An edge that has not
// decided for some time needs none. One above the limit spends a slot when it opens, or has lost its clients.
func (b *Bucket) Unused(r *Rule, now float64) (before float64) {
	switch {
	case b.Idle(now):
		return math.Inf(1)
	case now < b.above:
		return now - r.window/2
	}
	return math.Inf(-1)
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
