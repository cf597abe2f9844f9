package events

import (
	"testing"
	"time"
)

// Events that are renewed at a tick are also renewed at the next tick, even if the first tick was later than planned.
// Otherwise another instance could claim an event that is being handled after a single failed renewal.
func TestEventsAreRenewedAtEveryTick(t *testing.T) {
	c := &Consumer{cfg: Config{Idle: 40 * time.Second}, held: map[string]time.Time{}}
	start := time.Now()
	c.held["1-0"] = start
	for i, late := range []time.Duration{5 * time.Millisecond, 0, 3 * time.Millisecond, time.Millisecond} {
		if old := c.renewed(start.Add(time.Duration(i+1)*10*time.Second + late)); len(old) != 1 {
			t.Errorf("tick %d: renewed %v, want the event that is being handled", i+1, old)
		}
	}
	c.held["2-0"] = start.Add(49 * time.Second)
	if old := c.renewed(start.Add(50 * time.Second)); len(old) != 1 || old[0] != "1-0" {
		t.Errorf("renewed %v, want all but the event that was taken just before", old)
	}
}
