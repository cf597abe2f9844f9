package webhook

import (
	"slices"
	"sync"
	"testing"
	"time"

	"sluice/backend/events"
	"sluice/backend/store"
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

// While an old transaction is open, PostgreSQL removes no version of a delivery. Most leases of a backlog must not read
// the versions of deliveries that were leased before.
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
			w.add(n, 48) // each batch has a due_at of its own
			storetest.Exec(t, url, "UPDATE webhook_deliveries SET due_at = due_at - interval '1 minute'")
			for i := range leases {
				w.send(limit)
				if i == 3 { // there is a bound, and no other scan from the beginning is due
					clock.step = 0
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
		clock := &stepClock{at: time.Now()}
		e.now = clock.now
		e.endpoint(t, "a", false)
		e.add(t, "a", "1:1", "2:2")
		e.due(t, "2:2_a", -time.Minute)
		e.due(t, "1:1_a", -time.Hour)
		if due, err := e.DueEndpoints(e.ctx, nil); err != nil || !slices.Equal(due, []string{"a"}) {
			t.Errorf("due endpoints %v, %v", due, err)
		}
		e.results(t, delivered(e.wantLeased(t, "a", "1:1", "2:2")[1]))
		e.add(t, "a", "3:3")
		e.due(t, "3:3_a", -2*time.Minute)
		e.wantLeased(t, "a")
		if due, err := e.DueEndpoints(e.ctx, nil); err != nil || len(due) > 0 {
			t.Errorf("due endpoints %v, %v; want none", due, err)
		}
		e.add(t, "a", "4:4")
		e.wantLeased(t, "a", "4:4")
		clock.at = clock.at.Add(events.WholeScan)
		if due, err := e.DueEndpoints(e.ctx, nil); err != nil || !slices.Equal(due, []string{"a"}) {
			t.Errorf("due endpoints %v, %v", due, err)
		}
		e.wantLeased(t, "a", "3:3")
	})
}

// Pings do not move the bound, because they are sent while other deliveries wait. The bound stays below the time of
// deliveries that may become visible later.
func TestBoundIsBelowWaitingDeliveries(t *testing.T) {
	now := time.Now()
	old := Delivery{DueAt: now.Add(-time.Hour), Position: 1, Sequence: 1}
	recent := Delivery{DueAt: now, Position: 2, Sequence: 2}
	ping := Delivery{DueAt: now, Sequence: SequenceUnordered}
	for name, c := range map[string]struct {
		leased []Delivery
		want   leaseKey
	}{
		"none":   {},
		"ping":   {leased: []Delivery{ping}},
		"old":    {leased: []Delivery{old, ping}, want: leaseKey{old.DueAt, 1}},
		"recent": {leased: []Delivery{old, recent}, want: leaseKey{now.Add(-events.LateCommit), 2}},
	} {
		var bound events.ScanBound[leaseKey]
		if advance(&bound, c.leased, now); bound.Key() != c.want {
			t.Errorf("%s: bound %v, want %v", name, bound.Key(), c.want)
		}
	}
}

// due sets the time at which a delivery is due, relative to now.
func (e *env) due(t *testing.T, id string, after time.Duration) {
	t.Helper()
	_, err := store.UpdateRows(e.ctx, e.Store.db, "due", "UPDATE webhook_deliveries SET due_at = "+
		e.Store.db.Dialect().Ago("$1")+" WHERE id = $2", -after.Milliseconds(), id)
	if err != nil {
		t.Fatal(err)
	}
}

// When a delivery is delivered, the next one of its order becomes due above the bound, even if the bound has advanced
// beyond its former due time.
func TestDeliveryBehindALateOneIsAboveTheBound(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		clock := &stepClock{at: time.Now()}
		e.now = clock.now
		e.endpoint(t, "a", false)
		e.add(t, "a", "1:1", "1:2", "3:3")
		e.due(t, "1:1_a", -2*time.Hour)
		e.due(t, "1:2_a", -2*time.Hour)
		e.due(t, "3:3_a", -time.Hour)
		leased := e.wantLeased(t, "a", "1:1", "3:3")
		e.wantLeased(t, "a")
		e.results(t, delivered(leased[0]))
		e.wantLeased(t, "a", "1:2")
	})
}
