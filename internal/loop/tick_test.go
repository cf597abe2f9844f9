package loop

import (
	"testing"
	"testing/synctest"
	"time"
)

// Loops with the same interval tick at the same instants, regardless of when they begin. A loop with n times the
// interval ticks at every n-th of them.
func TestLoopsTickTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := map[time.Duration]time.Time{}
		for range 10 {
			for _, interval := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 400 * time.Millisecond} {
				time.Sleep(137 * time.Millisecond)
				wait := UntilTick(interval)
				if wait <= 0 || wait > interval {
					t.Errorf("%v until a tick at the interval %v", wait, interval)
				}
				Tick(t.Context(), interval)
				now := time.Now()
				for other, at := range last {
					if common := min(interval, other); interval%common == 0 && other%common == 0 && now.Sub(at)%common != 0 {
						t.Errorf("ticks of %v and %v are %v apart", interval, other, now.Sub(at))
					}
				}
				last[interval] = now
			}
		}
	})
}
