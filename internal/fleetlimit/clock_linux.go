package fleetlimit

import "golang.org/x/sys/unix"

// Now returns microseconds of CLOCK_BOOTTIME. All processes of a machine share this clock. It also counts the time in
// which the machine is suspended, because leased slots expire during that time.
func Now() float64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // cannot fail for an existing clock
	return float64(t.Nano()) / 1e3
}
