package gateway

import (
	"sync/atomic"
	"time"
)

// clock counts milliseconds from its start. It does not go backwards when the machine's time is set.
type clock struct {
	start time.Time
	ticks atomic.Int64
}

func newClock() *clock { return &clock{start: time.Now()} }

func (c *clock) now() int64 { return c.elapsed().Milliseconds() }

func (c *clock) elapsed() time.Duration { return time.Since(c.start) }

// tick takes the time for coarse.
func (c *clock) tick() { c.ticks.Store(c.now()) }

// coarse is the time of the last tick: late by up to tickEvery, and nearly free.
func (c *clock) coarse() int64 { return c.ticks.Load() }

func (c *clock) at(ms int64) time.Time { return c.start.Add(time.Duration(ms) * time.Millisecond) }

const tickEvery = 100 * time.Millisecond
