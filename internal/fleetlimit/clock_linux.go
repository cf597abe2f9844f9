package fleetlimit

import "golang.org/x/sys/unix"

// Now returns microseconds of CLOCK_MONOTONIC, which all processes of a machine share.
func Now() float64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail for an existing clock
	return float64(t.Nano()) / 1e3
}
