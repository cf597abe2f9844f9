package proxy

import "time"

// clock measures the time since its start, and does not jump when the system time is set.
type clock struct{ start time.Time }

func newClock() *clock { return &clock{start: time.Now()} }

// now returns the time in milliseconds.
func (c *clock) now() int64 { return time.Since(c.start).Milliseconds() }
