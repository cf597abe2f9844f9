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
	rate     float64 // orders that leave the queue per second, exponentially weighted
	known    bool
	left     time.Time // of the last sample at which orders had left the queue or it was empty
}

// meterMemory is the time constant of the exponentially weighted average. When orders wait and none leaves for as long,
// for example during an outage of the database, the rate is 0: the average is of the time before.
const meterMemory = 10 * time.Second

// Sample adds a sample: the number of orders ever accepted, and the counts of the queue.
func (m *Meter) Sample(now time.Time, accepted int64, s Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	waiting := s.Ready + s.Delayed + s.Leased
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
	case left < 0: // a rebuild has changed the counter, or orders were pushed again
		m.known = false
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

// stalled is the rate per second below which a queue counts as not draining.
const stalled = 0.01

// Pace describes how fast a queue drains.
type Pace struct {
	Known     bool          // PerSecond is valid
	PerSecond float64       // orders that leave the queue
	Drains    bool          // Within is valid: the queue is empty or draining
	Within    time.Duration // until all orders accepted so far have left the queue
}

// Pace returns the current estimate.
func (m *Meter) Pace() Pace {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := Pace{Known: m.known, Drains: !m.at.IsZero() && m.waiting == 0}
	if m.known {
		p.PerSecond = max(m.rate, 0)
	}
	if m.waiting > 0 && p.PerSecond >= stalled {
		p.Drains, p.Within = true, time.Duration(float64(m.waiting)/m.rate*float64(time.Second))
	}
	return p
}

// Meters holds a Meter for each shard.
type Meters []Meter

// Within returns the time to drain of the slowest shard. ok is false if it is false for any shard.
func (m Meters) Within() (d time.Duration, ok bool) {
	ok = len(m) > 0
	for i := range m {
		p := m[i].Pace()
		d, ok = max(d, p.Within), ok && p.Drains
	}
	return d, ok
}

// Shard returns the Pace of shard i.
func (m Meters) Shard(i int) Pace { return m[i].Pace() }

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
