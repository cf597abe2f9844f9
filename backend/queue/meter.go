package queue

import (
	"math"
	"sync"
	"time"
)

// Meter tells how long the queue needs to drain: within how long every order that is accepted by now has left it. It is told counts from time to time, and knows nothing until it was
// told twice. It is safe for concurrent use; the zero value is ready.
type Meter struct {
	mu       sync.Mutex
	at       time.Time
	accepted int64
	waiting  int64
	rate     float64 // orders that leave the queue in a second, averaged over the last while; below 0: not known
	known    bool
}

// meterMemory is how old a count is when it weighs a third of a new one.
const meterMemory = 10 * time.Second

// Sample tells how many orders were ever accepted by now, and how many of them wait in the queue. What came and does not wait any more has left.
func (m *Meter) Sample(now time.Time, accepted int64, s Stats) {
	m.mu.Lock()
	defer m.mu.Unlock()
	waiting := s.Ready + s.Delayed + s.Leased
	span := now.Sub(m.at).Seconds()
	left := float64((accepted - m.accepted) - (waiting - m.waiting))
	first := m.at.IsZero()
	m.at, m.accepted, m.waiting = now, accepted, waiting
	switch {
	case first || span <= 0:
		return
	case left < 0: // counted anew by a rebuild, or pushed again
		m.known = false
		return
	case !m.known:
		m.rate, m.known = left/span, true
		return
	}
	weight := 1 - math.Exp(-span/meterMemory.Seconds())
	m.rate += weight * (left/span - m.rate)
}

// stalled is a rate at which a queue is not drained.
const stalled = 0.01

// Pace is how fast a queue drains.
type Pace struct {
	Known     bool          // whether PerSecond is
	PerSecond float64       // orders that leave the queue
	Drains    bool          // whether Within is known: the queue is empty, or something leaves it
	Within    time.Duration // every order accepted by now has left the queue
}

// Pace tells all that the meter knows.
func (m *Meter) Pace() Pace {
	var p Pace
	p.Within, _, p.Drains = m.Drain()
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.Known = m.known; m.known {
		p.PerSecond = max(m.rate, 0)
	}
	return p
}

// Within is how long the queue needs at its present pace; ok is false when that is not known, or when nothing leaves it.
func (m *Meter) Within() (d time.Duration, ok bool) {
	d, _, ok = m.Drain()
	return d, ok
}

// Drain is Within, and known tells the two reasons apart for which it may not answer: the pace is not known, or it is known and nothing leaves the queue.
func (m *Meter) Drain() (d time.Duration, known, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.at.IsZero():
		return 0, false, false
	case m.waiting == 0:
		return 0, true, true
	case !m.known || m.rate < stalled:
		return 0, m.known, false
	}
	return time.Duration(float64(m.waiting) / m.rate * float64(time.Second)), true, true
}

// Meters are the meters of all shards.
type Meters []Meter

// Within is how long the slowest shard needs; ok is false when one is not known, or does not drain.
func (m Meters) Within() (d time.Duration, ok bool) {
	ok = len(m) > 0
	for i := range m {
		shard, drains := m[i].Within()
		d, ok = max(d, shard), ok && drains
	}
	return d, ok
}

// Shard tells the pace of one shard.
func (m Meters) Shard(i int) Pace { return m[i].Pace() }

// Away is how long to keep buyers away that find the shard full: until a tenth of it has drained, within two seconds and a minute.
func (m Meters) Away(i int) time.Duration {
	const least, most = 2 * time.Second, time.Minute
	d, known, drains := m[i].Drain()
	switch {
	case drains:
		return min(max(d/10, least), most)
	case known:
		return most
	}
	return 5 * time.Second
}
