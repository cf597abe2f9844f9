package webhook

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

func TestDeliveriesOfAnOrderAreLeasedInOrder(t *testing.T) {
	onEngines(t, webhookSequences)
}

func webhookSequences(t *testing.T, e *env) {
	e.endpoint(t, "a", false)
	e.endpoint(t, "b", false)
	e.add(t, "a", "7:1", "8:2", "7:3", "9:4", "7:5")
	e.add(t, "b", "7:1")
	e.add(t, "a", "7:1", "8:2") // again
	if got := e.lease(t, "a", 0, time.Minute, 9); len(got) != 0 {
		t.Fatalf("leased above upTo: %+v", got)
	}
	leased := e.wantLeased(t, "a", "7:1", "8:2", "9:4")
	if d := leased[0]; d.Body != `{"sequence":"7:1"}` || d.Type != "order.created" || d.Fence != 1 || d.Attempts != 0 ||
		d.Sequence != 7 || d.Position != 1 {
		t.Errorf("%+v", d)
	}
	e.wantLeased(t, "a") // the others wait for them
	e.results(t, delivered(leased[0]), failed(leased[1], time.Hour))
	leased = e.wantLeased(t, "a", "7:3")
	e.results(t, givenUp(leased[0]))
	e.wantLeased(t, "a", "7:5")
	e.wantLeased(t, "b", "7:1")

	// A delivery behind a delayed one of its sequence is delayed too. When that one is redelivered early, both are due.
	e.add(t, "a", "8:6")
	e.wantLeased(t, "a")
	list, err := e.Deliveries(e.ctx, DeliveryQuery{EndpointID: "a", State: DeliveryWaiting})
	if err != nil || len(list) != 4 || list[0].ID != "8:6_a" || time.Until(list[0].DueAt) < 50*time.Minute ||
		list[0].Leased || !list[1].Leased {
		t.Fatalf("%+v, %v", list, err)
	}
	if err := e.Redeliver(e.ctx, "a", "8:2_a"); err != nil {
		t.Fatal(err)
	}
	e.results(t, delivered(e.wantLeased(t, "a", "8:2")[0]))
	e.wantLeased(t, "a", "8:6")

	d, log, err := e.Delivery(e.ctx, "a", "8:2_a")
	if err != nil || d.State != DeliveryDelivered || d.EndedAt.IsZero() || len(log) != 2 || log[0].Status != 500 ||
		log[0].Answer != "oh \uFFFDno" || log[0].Error == "" || log[1].Status != 204 || log[1].Seconds != .007 ||
		log[1].Number != 2 {
		t.Errorf("%+v, %+v, %v", d, log, err)
	}
	if got, err := e.Show(e.ctx, "a"); err != nil || got.Waiting != 3 || got.Failed != 1 ||
		got.FailingSince.IsZero() == (got.Failures > 0) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestWaitingDeliveriesAreFoundByTheExactSale(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "a", false)
		later := time.Now().Add(time.Hour)
		v := events.Event{ID: "1.paid", Type: events.Paid, OrderID: 1, SaleID: "shoe-1", Buyer: `"sale_id":"s"`, At: later}
		if err := Handler(e.Store, func(int64) {})(e.ctx, []events.Event{v}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"shoe-1", "shoe_1", "SHOE-1", "______", "shoe", "shoe-", "hoe-1"} {
			if found, err := e.HasWaiting(e.ctx, id); err != nil || found != (id == v.SaleID) {
				t.Errorf("sale %s: %t, %v", id, found, err)
			}
		}
		// PruneDeliveries deletes the deliveries of a removed endpoint later.
		if err := e.Remove(e.ctx, "a"); err != nil {
			t.Fatal(err)
		}
		if found, err := e.HasWaiting(e.ctx, v.SaleID); err != nil || found {
			t.Errorf("after the endpoint was removed: %t, %v", found, err)
		}
	})
}

func TestStrictEndpointGetsDeliveriesInOrder(t *testing.T) {
	onEngines(t, webhookStrict)
}

func webhookStrict(t *testing.T, e *env) {
	e.endpoint(t, "a", true)
	e.add(t, "a", "0:1", "0:2", "0:3", "-1:0")
	leased := e.wantLeased(t, "a", "-1:0", "0:1")
	e.wantLeased(t, "a")
	e.results(t, failed(leased[1], time.Hour))
	e.wantLeased(t, "a")
	if err := e.Redeliver(e.ctx, "a", "0:1_a"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"0:1", "0:2", "0:3"} {
		e.results(t, delivered(e.wantLeased(t, "a", id)[0]))
	}
	e.wantLeased(t, "a")
}

// A sender that is active when the endpoint is paused gets no more deliveries, except for SequenceUnordered.
func TestPausedEndpointGetsOnlyPings(t *testing.T) {
	onEngines(t, webhookPaused)
}

func webhookPaused(t *testing.T, e *env) {
	for _, strict := range []bool{false, true} {
		id, sequence := "a", "7"
		if strict {
			id, sequence = "b", "0"
		}
		e.endpoint(t, id, strict)
		e.add(t, id, sequence+":1", sequence+":2")
		first := e.wantLeased(t, id, sequence+":1")
		set := func(to EndpointState) {
			if _, err := e.ChangeEndpoint(e.ctx, id, "webhook.set",
				func(p *Endpoint) error { p.State = to; return nil }); err != nil {
				t.Fatal(err)
			}
		}
		set(EndpointPaused)
		e.results(t, delivered(first[0]))
		e.wantLeased(t, id)
		if due, err := e.DueEndpoints(e.ctx, nil); err != nil || slices.Contains(due, id) {
			t.Errorf("a paused endpoint is due: %v, %v", due, err)
		}
		e.add(t, id, "-1:0")
		if due, err := e.DueEndpoints(e.ctx, nil); err != nil || !slices.Contains(due, id) {
			t.Errorf("due endpoints with a waiting ping: %v, %v", due, err)
		}
		e.results(t, delivered(e.wantLeased(t, id, "-1:0")[0]))
		set(EndpointActive)
		e.wantLeased(t, id, sequence+":2")
	}
}

func TestExpiredLeaseLosesItsResult(t *testing.T) {
	onEngines(t, webhookLeases)
}

func webhookLeases(t *testing.T, e *env) {
	e.endpoint(t, "a", false)
	e.add(t, "a", "1:1", "2:2")
	first := e.lease(t, "a", math.MaxInt64, time.Minute, 1)
	if len(first) != 1 {
		t.Fatalf("%+v", first)
	}
	second := e.lease(t, "a", math.MaxInt64, time.Minute, 9)
	if len(second) != 1 || second[0].ID == first[0].ID {
		t.Fatalf("second lease: %+v", second)
	}
	e.add(t, "a", "3:3")
	short := e.lease(t, "a", math.MaxInt64, 30*time.Millisecond, 9)
	if len(short) != 1 {
		t.Fatalf("%+v", short)
	}
	var third []Delivery
	testenv.Eventually(t, time.Minute, "the lease expires", func() bool {
		third = e.lease(t, "a", math.MaxInt64, time.Minute, 9)
		return len(third) == 1
	})
	if third[0].ID != short[0].ID || third[0].Fence != 2 || !third[0].Interrupted || short[0].Interrupted {
		t.Fatalf("%+v", third)
	}
	if lost := e.results(t, failed(short[0], time.Hour)); lost != 1 {
		t.Errorf("lost results of an expired lease: %d", lost)
	}
	if lost := e.results(t, delivered(third[0])); lost != 0 {
		t.Errorf("lost %d", lost)
	}
	if lost := e.results(t, delivered(third[0])); lost != 1 { // recorded, but the response was lost
		t.Errorf("lost results of a repeated call: %d", lost)
	}
	d, log, err := e.Delivery(e.ctx, "a", short[0].ID)
	if err != nil || d.State != DeliveryDelivered || d.Attempts != 1 || len(log) != 2 || log[0].Status != 500 {
		t.Errorf("%+v %+v %v", d, log, err)
	}
	e.results(t, Result{Delivery: second[0], State: DeliveryWaiting, Released: true})
	again := e.wantLeased(t, "a", strings.TrimSuffix(second[0].ID, "_a"))
	if again[0].Attempts != 0 || again[0].Interrupted {
		t.Errorf("a released delivery counts as an attempt: %+v", again)
	}
	if err := e.Remove(e.ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.RecordResults(e.ctx, "a", []Result{delivered(again[0])}); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("removed endpoint: %v", err)
	}
}

// Several senders run, and some crash with leased deliveries. The deliveries of a sequence are recorded in order, and
// finally all of them.
func TestConcurrentSendersKeepTheOrder(t *testing.T) {
	onEngines(t, webhookRace)
}

func webhookRace(t *testing.T, e *env) {
	const sequences, each = 6, 4
	e.endpoint(t, "a", false)
	for p := range each {
		for l := range sequences {
			e.add(t, "a", fmt.Sprintf("%d:%d", l+1, p*sequences+l+1))
		}
	}
	var mu sync.Mutex
	last := map[int64]int64{}
	done := 0
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				over := done == sequences*each
				mu.Unlock()
				if over {
					return
				}
				_, leased, err := e.LeaseDeliveries(ctx, "a", math.MaxInt64, 100*time.Millisecond, 5)
				if err != nil {
					t.Error(err)
					return
				}
				if rand.N(4) == 0 { // the sender crashes
					continue
				}
				for _, d := range leased {
					mu.Lock() // results of expired leases are not recorded
					recorded, err := e.RecordResults(ctx, "a", []Result{delivered(d)})
					if len(recorded) == 1 {
						if last[d.Sequence] >= d.Position {
							t.Errorf("sequence %d: %d after %d", d.Sequence, d.Position, last[d.Sequence])
						}
						last[d.Sequence] = d.Position
						done++
					}
					mu.Unlock()
					if err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if done != sequences*each {
		t.Errorf("%d delivered, want %d", done, sequences*each)
	}
}
