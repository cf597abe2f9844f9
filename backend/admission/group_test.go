package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/sale"
	"sluice/backend/spread"
)

// fakeRun replaces the script: it records the groups and blocks each one until release is closed.
type fakeRun struct {
	mu       sync.Mutex
	sizes    map[string][]int
	inFlight map[string]int
	most     int           // largest number of groups of one sale in flight
	release  chan struct{} // nil: do not block
}

func (f *fakeRun) run(_ context.Context, part spread.Part, group []*waiter) {
	saleID := part.SaleID
	f.mu.Lock()
	f.sizes[saleID] = append(f.sizes[saleID], len(group))
	f.inFlight[saleID]++
	f.most = max(f.most, f.inFlight[saleID])
	f.mu.Unlock()
	if f.release != nil {
		<-f.release
	}
	for _, w := range group {
		if w.request.SaleID != saleID {
			w.err = fmt.Errorf("request is in the group of sale %s", saleID)
		}
		w.decision = Decision{Outcome: sale.Accepted, OrderID: w.id}
	}
	f.mu.Lock()
	f.inFlight[saleID]--
	f.mu.Unlock()
}

func newFake(release chan struct{}) (*fakeRun, *groups) {
	f := &fakeRun{sizes: map[string][]int{}, inFlight: map[string]int{}, release: release}
	return f, &groups{run: f.run, timeout: defaultTimeout, queues: map[spread.Part][]*waiter{}}
}

func decideIn(ctx context.Context, g *groups, saleID string, id sale.OrderID) (Decision, error) {
	return g.decide(ctx, spread.Part{SaleID: saleID}, Request{SaleID: saleID}, id)
}

func TestWaitingRequestsShareTheNextGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f, g := newFake(release)
		var wg sync.WaitGroup
		decide := func(saleID string, id int) {
			wg.Go(func() {
				d, err := decideIn(context.Background(), g, saleID, sale.OrderID(id))
				if err != nil || d.OrderID != sale.OrderID(id) {
					t.Errorf("request %d: %+v, %v", id, d, err)
				}
			})
			synctest.Wait()
		}
		const late = groupSize + 5
		for i := range 1 + late {
			decide("a", i+1)
		}
		decide("b", 1000) // a sale does not wait for another one
		if n := len(f.sizes["b"]); n != 1 {
			t.Errorf("%d groups of the other sale, want 1", n)
		}
		close(release)
		wg.Wait()
		want := []int{1, groupSize, 5}
		if fmt.Sprint(f.sizes["a"]) != fmt.Sprint(want) {
			t.Errorf("group sizes %v, want %v", f.sizes["a"], want)
		}
		if f.most > 1 {
			t.Errorf("%d groups of one sale in flight", f.most)
		}
		synctest.Wait()
		if len(g.queues) != 0 || g.waiting != 0 {
			t.Errorf("%d queues and %d requests remain", len(g.queues), g.waiting)
		}
	})
}

func TestRequestThatWaitedTooLongFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f, g := newFake(release)
		errs := make(chan error, 10)
		go func() { _, err := decideIn(context.Background(), g, "a", 1); errs <- err }()
		synctest.Wait()
		go func() { _, err := decideIn(context.Background(), g, "a", 2); errs <- err }()
		synctest.Wait()
		<-time.After(g.timeout + time.Millisecond) // fake clock of synctest
		go func() { _, err := decideIn(context.Background(), g, "a", 3); errs <- err }()
		synctest.Wait()
		close(release)
		failed := 0
		for range 3 {
			if <-errs != nil {
				failed++
			}
		}
		if failed != 1 || fmt.Sprint(f.sizes["a"]) != "[1 1]" {
			t.Errorf("%d requests failed, want the one that waited; group sizes %v", failed, f.sizes["a"])
		}
	})
}

func TestCancelledCallDoesNotAffectOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		_, g := newFake(release)
		ctx, cancel := context.WithCancel(context.Background())
		gone, stays := make(chan error, 1), make(chan error, 1)
		go func() { _, err := decideIn(ctx, g, "a", 1); gone <- err }()
		go func() { _, err := decideIn(context.Background(), g, "a", 2); stays <- err }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the cancelled call returned %v", err)
		}
		close(release)
		if err := <-stays; err != nil {
			t.Errorf("the other call returned %v", err)
		}
	})
}

// A hot sale fills the free capacity, and each other sale with requests gets an equal share.
func TestWaitingRequestsAreBoundedPerSale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		_, g := newFake(release)
		var wg sync.WaitGroup
		decide := func(saleID string, n int) {
			for range n {
				wg.Go(func() { _, _ = decideIn(context.Background(), g, saleID, 1) })
			}
			synctest.Wait()
		}
		wantRejected := func(saleID string) {
			t.Helper()
			if _, err := decideIn(context.Background(), g, saleID, 1); !errors.Is(err, errTooManyWaiting) {
				t.Errorf("sale %s has too many requests: %v", saleID, err)
			}
		}
		fill := func(saleID string, n int) {
			decide(saleID, 1) // in flight
			decide(saleID, n)
			if got := len(g.queues[spread.Part{SaleID: saleID}]); got != n {
				t.Errorf("%d requests wait for sale %s, want %d", got, saleID, n)
			}
		}
		fill("hot", maxWaiting)
		wantRejected("hot")
		fill("warm", maxWaiting/2)
		wantRejected("warm")
		wantRejected("hot")
		fill("cool", maxWaiting/3)
		wantRejected("cool")
		fill("late", maxWaitingTotal-g.waiting)
		wantRejected("late")
		wantRejected("new")
		close(release)
		wg.Wait()
		if _, err := decideIn(context.Background(), g, "new", 1); err != nil {
			t.Errorf("after the queues are empty: %v", err)
		}
	})
}
