package proxy

import (
	"testing"
	"time"
)

// A request must not try all backends one after the other if each of them times out.
func TestTimeoutIsRetriedWithinTheWindowOnly(t *testing.T) {
	for after, want := range map[time.Duration]bool{
		0: true, retryWindow - 1: true, retryWindow: false, time.Minute: false,
	} {
		if got := retryable(errTimeout, true, after); got != want {
			t.Errorf("timeout after %v: retryable %t, want %t", after, got, want)
		}
		if retryable(errTimeout, false, after) || !retryable(errDial, false, after) ||
			!retryable(errBroken, true, after) || retryable(errBroken, false, after) {
			t.Errorf("after %v: wrong decision for another failure", after)
		}
	}
}
