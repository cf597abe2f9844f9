package fleetlimit

import "golang.org/x/sys/unix"

// Now returns microseconds of CLOCK_BOOTTIME, which all processes of a machine share and which counts suspended time:
// meanwhile leased slots close.
func Now() float64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // cannot fail for an existing clock
	return float64(t.Nano()) / 1e3
}
