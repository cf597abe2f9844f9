package proxy

import "time"

// clock measures the time since its start, and does not jump when the system time is set.
type clock struct{ start time.Time }

func newClock() *clock { return &clock{start: time.Now()} }

func (c *clock) elapsed() time.Duration { return time.Since(c.start) }

// now returns the same time in milliseconds.
func (c *clock) now() int64 { return c.elapsed().Milliseconds() }
