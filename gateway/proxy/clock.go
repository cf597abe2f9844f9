package proxy

import (
	"sync/atomic"
	"time"

	"sluice/internal/loop"
)

// clock measures milliseconds since its start, and does not jump when the system time is set.
type clock struct {
	start   time.Time
	ticks   atomic.Int64
	read    atomic.Bool // coarse was called since maintain has reset it
	stopped atomic.Bool // there are no ticks; coarse reads the time and wakes maintain
	wake    loop.Wake
}

const tickEvery = 100 * time.Millisecond

func newClock() *clock { return &clock{start: time.Now(), wake: loop.NewWake()} }

func (c *clock) now() int64 { return c.elapsed().Milliseconds() }

func (c *clock) elapsed() time.Duration { return time.Since(c.start) }

// tick updates the coarse time.
func (c *clock) tick() { c.ticks.Store(c.now()) }

// resume ends the time without ticks.
func (c *clock) resume() {
	c.tick()
	c.stopped.Store(false)
}

// coarse returns the time of the last tick. It is up to tickEvery late, and much cheaper than now. Without ticks it
// returns the exact time and causes them to resume.
func (c *clock) coarse() int64 {
	if c.stopped.Load() {
		c.wake.Up()
		return c.now()
	}
	if !c.read.Load() {
		c.read.Store(true)
	}
	return c.ticks.Load()
}

func (c *clock) at(ms int64) time.Time { return c.start.Add(time.Duration(ms) * time.Millisecond) }
