package webhook

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/backend/store/storetest"
)

// stepClock advances by step at each reading.
type stepClock struct {
	mu   sync.Mutex
	at   time.Time
	step time.Duration
}

func (c *stepClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(c.step)
	return c.at
}

// While an old transaction is open, PostgreSQL removes no version of a delivery. Most leases must not read the versions
// of deliveries that were leased before.
func TestLeasesBesideAnOldTransactionReadLinearly(t *testing.T) {
	t.Parallel()
	for name, strict := range map[string]bool{"in the order of each order": false, "in strict order": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n, leases = 4800, 600
			limit, read := n/leases, 400 // read: maximum of rows and index entries per lease, and for its results
			if strict {
				limit, read = 1, 100
			}
			url := storetest.Postgres(t)
			w := newBurst(t, url, strict)
			clock := &stepClock{at: time.Now(), step: time.Hour}
			w.now = clock.now
			const begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM admin_log"
			if _, err := storetest.Connect(t, url).Exec(t.Context(), begin); err != nil {
				t.Fatal(err)
			}
			w.add(n, 48) // each batch has its due_at
			for i := range leases {
				w.send(limit)
				if i == 3 { // there is a bound, and scans from the beginning take an hour: no other one is due
					clock.step = lateDelivery
				}
			}
			if fetched := w.fetched(n); fetched > leases*read {
				t.Errorf("%d leases read %d rows and index entries: more than %d per lease", leases, fetched, read)
			}
		})
	}
}

// A delivery below the bound, whose lease expired or which became visible late, waits for a scan from the beginning.
func TestDeliveryBelowTheBoundIsLeasedLater(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		clock := &stepClock{at: time.Now(), step: time.Second} // a scan takes a second
		e.now = clock.now
		e.endpoint(t, "a", false)
		for i := range 4 {
			e.add(t, "a", fmt.Sprintf("%d:%d", i+1, i+1))
			e.results(t, delivered(e.wantLeased(t, "a", fmt.Sprintf("%d:%d", i+1, i+1))[0]))
		}
		e.add(t, "a", "5:5")
		storetest.Exec(t, e.url, "UPDATE webhook_deliveries SET due_at = (SELECT min(due_at) FROM webhook_deliveries)")
		e.wantLeased(t, "a")
		e.add(t, "a", "6:6")
		e.wantLeased(t, "a", "6:6")
		clock.at = clock.at.Add(rescanShare * clock.step)
		if due, err := e.DueEndpoints(e.ctx, nil); err != nil || !slices.Equal(due, []string{"a"}) {
			t.Errorf("due endpoints %v, %v", due, err)
		}
		e.wantLeased(t, "a", "5:5")
	})
}

// Deliveries behind a delivered one of their order are above the bound, also after a slow delivery.
func TestDeliveryBehindALateOneIsAboveTheBound(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		clock := &stepClock{at: time.Now(), step: time.Second}
		e.now = clock.now
		e.endpoint(t, "a", false)
		e.add(t, "a", "1:1", "1:2")
		first := e.wantLeased(t, "a", "1:1")[0]
		for i := range 4 {
			e.add(t, "a", fmt.Sprintf("%d:%d", i+3, i+3))
			e.results(t, delivered(e.wantLeased(t, "a", fmt.Sprintf("%d:%d", i+3, i+3))[0]))
		}
		e.results(t, delivered(first))
		e.wantLeased(t, "a", "1:2")
	})
}
