//go:build !linux

package fleetlimit

import "time"

var start = time.Now()

// Now returns microseconds of a monotonic clock of this process.
func Now() float64 { return float64(time.Since(start).Nanoseconds()) / 1e3 }
