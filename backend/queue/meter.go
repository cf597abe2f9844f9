package queue

import (
	"math"
	"sync"
	"time"
)

// Meter estimates how long a queue needs to drain, from periodic samples of its counts. It needs two samples. It is
// safe for concurrent use, and its zero value is ready to use.
type Meter struct {
	mu       sync.Mutex
	at       time.Time
	accepted int64
	waiting  int64
	rate     float64 // orders that leave the queue per second, exponentially weighted; 0 if not known
	known    bool
	left     time.Time // of the last sample at which orders had left the queue or it was empty
}

// meterMemory is the time constant of the exponentially weighted average. When orders wait and none has left for this
// time, for example during an outage of the database, the rate is set to 0, because the average still describes the
// time before the outage.
const meterMemory = 10 * time.Second

// Sample adds a sample: the number of orders ever accepted, and the counts of the queue.
func (m *Meter) Sample(now time.Time, accepted int64, s Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	waiting := s.waiting()
	span := now.Sub(m.at).Seconds()
	left := float64((accepted - m.accepted) - (waiting - m.waiting))
	first := m.at.IsZero()
	m.at, m.accepted, m.waiting = now, accepted, waiting
	if first || left != 0 || waiting == 0 {
		m.left = now
	}
	switch {
	case first || span <= 0:
		return
	case left < 0: // the counter is unknown or was changed by a rebuild, or orders were pushed again: start again
		m.rate, m.known, m.at = 0, false, time.Time{}
		return
	case !m.known:
		m.rate, m.known = left/span, true
		return
	}
	weight := 1 - math.Exp(-span/meterMemory.Seconds())
	m.rate += weight * (left/span - m.rate)
	if now.Sub(m.left) >= meterMemory {
		m.rate = 0
	}
}

// Stop discards the rate, because the database does not respond. It has no effect if orders have left the queue since
// the sample before the last one.
func (m *Meter) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.left.Equal(m.at) {
		m.rate, m.known = 0, false
	}
}

// stalled is the rate per second below which a queue counts as not draining.
const stalled = 0.01

// Pace describes how fast a queue drains.
type Pace struct {
	Known     bool          // PerSecond is valid
	PerSecond float64       // orders that leave the queue
	Drains    bool          // Within is valid: the queue is empty or draining
	Within    time.Duration // until all orders accepted so far have left the queue
}

// Pace returns the estimate of the last sample. It returns the zero Pace if orders wait, the rate is unknown or below
// stalled, and an order left the queue within meterMemory: a worker may be about to write the others.
func (m *Meter) Pace() Pace {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := Pace{Known: m.known, PerSecond: m.rate, Drains: !m.at.IsZero() && m.waiting == 0}
	switch {
	case m.waiting == 0:
	case m.rate >= stalled:
		p.Drains, p.Within = true, time.Duration(float64(m.waiting)/m.rate*float64(time.Second))
	case m.at.Sub(m.left) < meterMemory:
		return Pace{}
	default:
		p.Known = true
	}
	return p
}

// Meters holds a Meter for each shard.
type Meters []Meter

// Shard returns the Pace of shard i. now has the current counts of the shard, or is nil if they are unknown. It returns
// the zero Pace if the shard was empty at the last sample and is not empty now.
func (m Meters) Shard(i int, now *Stats) Pace {
	p := m[i].Pace()
	if now != nil && now.waiting() > 0 && p.Drains && p.Within == 0 {
		return Pace{}
	}
	return p
}

// Within returns the time to drain of the slowest shard. ok is false if a shard does not drain or its Pace is unknown.
// now has the current counts of each shard; see Shard.
func (m Meters) Within(now []*Stats) (d time.Duration, ok bool) {
	ok = len(m) > 0
	for i := range m {
		p := m.Shard(i, now[i])
		d, ok = max(d, p.Within), ok && p.Drains
	}
	return d, ok
}

// RetryAfter returns the delay for buyers when shard i is full: the time to drain a tenth of it, between two seconds
// and a minute.
func (m Meters) RetryAfter(i int) time.Duration {
	const least, most = 2 * time.Second, time.Minute
	p := m[i].Pace()
	switch {
	case p.Drains:
		return min(max(p.Within/10, least), most)
	case p.Known:
		return most
	}
	return 5 * time.Second
}
