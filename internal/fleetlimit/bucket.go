package fleetlimit

import "math"

// Outcome is the decision about one request.
type Outcome int

// The outcomes.
const (
	Admitted    Outcome = iota // a slot was spent
	Refused                    // neither the edge nor Redis has a slot
	Unavailable                // Redis cannot be used; on_error of the rule decides
	NeedsLease                 // lease Demand, apply the lease, and decide again
	Wait                       // a lease of this bucket is in progress; decide again after its end
)

// Demand is the size of a lease.
type Demand struct {
	Lanes int // from 1
	Slots int // of each lane, from 1
}

// Verdict is the result of Bucket.Take.
type Verdict struct {
	Outcome Outcome
	Wait    float64 // Refused: us until a slot may be free
	Poll    bool    // Refused: lease Demand without waiting for it
	Demand  Demand  // NeedsLease and Poll
	spent   Segment // Admitted: the slot
}

// Segment holds leased slots of one lane. Times are us of the edge's monotonic clock. The next slot may be spent from
// Opens to Closes, and each further slot OpensStep and ClosesStep later.
type Segment struct {
	Opens, OpensStep   float64
	Closes, ClosesStep float64
	N                  int // slots left

	Lane   int
	Next   float64 // number of the next slot
	Stride int     // difference between the numbers of adjacent slots
	ID     string  // id of the lease; "" for a slot that cannot be returned
}

// skip removes the next n slots.
func (s *Segment) skip(n int) {
	s.Opens += float64(n) * s.OpensStep
	s.Closes += float64(n) * s.ClosesStep
	s.Next += float64(n * s.Stride)
	s.N -= n
}

// expire removes the closed slots.
func (s *Segment) expire(now float64) {
	if s.N > 0 && s.Closes < now {
		s.skip(min(s.N, int(math.Ceil((now-s.Closes)/s.ClosesStep))))
	}
}

// end returns the number of the first slot after the segment.
func (s *Segment) end() float64 { return s.Next + float64(s.N*s.Stride) }

// Lease is the reply of Redis, converted to the edge's clock.
type Lease struct {
	Redis    float64 // us since 1970 on the clock of Redis
	Further  float64 // us until Redis may have another slot
	Starting bool    // rejected, because slots may have been leased before this server started
	Segments []Segment
}

// Bucket is the state of one key at an edge. The zero value holds no slots. Not safe for concurrent use.
type Bucket struct {
	segments []Segment

	retry    float64 // until then Redis has no further slot, or is not called
	unusable bool    // until retry Redis cannot be used: it does not know its slots, or answered too late
	pause    float64 // us without calls after another late lease; 0: the last lease was not late

	leasingUntil float64 // latest end of the lease in progress; 0: none
	leasedAt     float64 // time of the last lease; 0: none
	decisions    int     // decisions since leasedAt
	redis        float64 // Lease.Redis of the last lease
	used         float64 // time of the last decision

	above   float64 // the fleet is assumed to be above the limit until then
	penalty float64 // us by which above was extended after the last lease

	since float64 // start of the interval in which seen counts decisions
	seen  int
}

const (
	// unknownWait, in us, is reported to a client if the edge may not lease slots yet.
	unknownWait = 1_000_000

	leaseTimeout = 1_000_000 // maximum us that a lease is in progress

	// If a lease arrives too late to be spent, the edge leases again. A second consecutive late lease causes a pause of
	// twice the duration of the first one, or of its own duration if that is longer. Each further late lease doubles
	// the pause.
	latePause = 1_000_000 // us, at most

	// A lease should suffice for leaseDecisions decisions, and for leaseTime us.
	leaseDecisions = 256
	leaseTime      = 20_000.0
	calmTime       = 1_000_000.0 // us, at most, below the limit

	// pollDecisions is the number of decisions after which an edge calls Redis although Redis had no further slot,
	// because another edge may have returned slots. Once Redis may have a further slot, an edge without slots calls it
	// after restDecisions decisions, and any edge calls it after pollTime. Slots that no edge leases within a window
	// are lost.
	pollDecisions = 64
	restDecisions = 16
	pollTime      = 1_000_000 // us

	// The demand is measured over recent decisions. After recentDecisions, or after recentTime us, half of them are
	// discarded.
	recentDecisions = 512
	recentTime      = 8_000_000

	coldAfter = 10_000_000 // us without a request after which the demand is unknown
)

// Count counts a request at a time in us of the monotonic clock. Call it once per request, before the first Take.
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

// Take decides about a request at a time in us of the monotonic clock.
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
		b.segments[best].skip(1)
		return v
	}
	if b.leasingUntil > now && now >= b.retry {
		return Verdict{Outcome: Wait}
	}
	if now < b.retry {
		if b.unusable {
			return Verdict{Outcome: Unavailable}
		}
		v := Verdict{Outcome: Refused, Wait: min(opens, b.retry) - now}
		if b.decisions >= pollDecisions && b.leasingUntil <= now {
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
	return Verdict{Outcome: NeedsLease, Demand: d}
}

// demand returns the size of the next lease. It has at most as many slots as the edge has counted decisions recently.
// Below the limit, a lease is a little larger than the edge's demand. It covers a short time, because no other edge can
// use the slots that this edge holds. Above the limit, where the edge refuses requests, a lease is smaller than the
// demand, so that the edge spends every slot. It covers a long time, so that an edge that refuses requests leases
// rarely. An edge that cannot spend a whole lane leases slots of one lane only, for the requests that it expects in a
// window. Slots of several lanes would close within a shorter time.
func (b *Bucket) demand(r *Rule, now float64) Demand {
	recent := max(b.seen, 1)
	rate := float64(recent) / max(now-b.since, 1) // per us
	share := rate * r.interval * float64(r.lanes) // in lanes
	span, above := calmTime, now < b.above
	held, longest := b.held(now)
	if above {
		share, span = 0.8*share, r.ahead+r.window
		waited := now-b.leasedAt > pollTime
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

// held returns the number of lanes with slots that open later, and the largest number of such slots in a lane.
func (b *Bucket) held(now float64) (lanes, longest int) {
	for _, s := range b.segments {
		if s.N > 0 && s.Opens > now {
			lanes++
			longest = max(longest, s.N)
		}
	}
	return lanes, longest
}

// Begin records the start of a lease.
func (b *Bucket) Begin(now float64) { b.leasingUntil = now + leaseTimeout }

// Apply adds the slots of a lease and returns its result.
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
	switch trip := now - (b.leasingUntil - leaseTimeout); {
	case result == Granted, len(l.Segments) == 0 && trip < r.window:
		b.pause = 0 // a lease with this round trip can be spent
	case len(l.Segments) > 0:
		repeated := b.pause > 0
		b.pause, result = min(max(2*b.pause, trip), latePause), Late
		if repeated {
			b.retry = max(b.retry, now+b.pause)
		}
	}
	b.unusable = l.Starting || b.pause > 0 // late leases may have wasted slots
	if l.Further == 0 || b.pause > 0 {
		b.penalty = 0
	} else {
		b.penalty = min(max(2*b.penalty, r.window, leaseTime), r.ahead+r.window)
		b.above = last + b.penalty
	}
	b.leasingUntil, b.leasedAt, b.decisions = 0, now, 0
	return result
}

// Fail records that a lease has failed. Slots that Redis may have leased count as spent.
func (b *Bucket) Fail() { b.leasingUntil = 0 }

// Refund restores the slot of an admitted request that another rule has rejected.
func (b *Bucket) Refund(v Verdict) {
	s := v.spent
	s.N, s.ID = 1, ""
	b.segments = append(b.segments, s)
}

// Return removes the segments whose next slot has opened before a time, and returns those that can be returned to
// Redis. Adjacent segments of a lane are joined if possible, because Redis compares only the end of the last lease.
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

// Unused returns the argument before of Return: the edge does not need segments whose next slot opened earlier. An idle
// edge needs none. Above the limit an edge spends each slot when it opens, so a slot that is open for longer shows that
// the edge has lost its clients.
func (b *Bucket) Unused(r *Rule, now float64) (before float64) {
	switch {
	case b.Idle(now):
		return math.Inf(1)
	case now < b.above:
		return now - r.window/2
	}
	return math.Inf(-1)
}

// Idle reports whether the edge has not decided for so long that it does not need its slots any more.
func (b *Bucket) Idle(now float64) bool {
	gap := 0.0
	if b.decisions > 0 {
		gap = (b.used - b.leasedAt) / float64(b.decisions)
	}
	return now-b.used > min(max(8*gap, 1_000_000), 5_000_000)
}

// Empty reports whether the bucket is equivalent to a new one.
func (b *Bucket) Empty(now float64) bool {
	return len(b.segments) == 0 && b.leasingUntil <= now && now >= b.retry && now-b.used > coldAfter
}
