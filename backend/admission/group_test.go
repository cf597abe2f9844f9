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
)

// fakeRun stands for Redis: it says what groups it was asked about, and holds each until it is let go.
type fakeRun struct {
	mu       sync.Mutex
	sizes    map[string][]int
	inFlight map[string]int
	most     int
	release  chan struct{} // nil: at once
}

func (f *fakeRun) run(_ context.Context, saleID string, group []*waiter) {
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
			w.err = fmt.Errorf("in the group of %s", saleID)
		}
		w.decision = Decision{Outcome: sale.Accepted, OrderID: w.id}
	}
	f.mu.Lock()
	f.inFlight[saleID]--
	f.mu.Unlock()
}

func newFake(release chan struct{}) (*fakeRun, *groups) {
	f := &fakeRun{sizes: map[string][]int{}, inFlight: map[string]int{}, release: release}
	return f, &groups{run: f.run, timeout: decideTimeout, sales: map[string]*saleQueue{}}
}

func TestRequestsThatComeWhileGroupsAreUnderWayGoTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f, g := newFake(release)
		var wg sync.WaitGroup
		ask := func(saleID string, id int) {
			wg.Go(func() {
				d, err := g.decide(context.Background(), Request{SaleID: saleID}, sale.OrderID(id))
				if err != nil || d.OrderID != sale.OrderID(id) {
					t.Errorf("request %d got %+v, %v", id, d, err)
				}
			})
			synctest.Wait()
		}
		const late = groupSize + 5
		for i := range groupsPerSale + late {
			ask("a", i+1)
		}
		ask("b", 1000) // another sale does not wait for the first one
		if n := len(f.sizes["b"]); n != 1 {
			t.Errorf("%d groups of the other sale, want 1", n)
		}
		close(release)
		wg.Wait()
		want := []int{1, 1, groupSize, 5}
		if fmt.Sprint(f.sizes["a"]) != fmt.Sprint(want) {
			t.Errorf("groups of %v, want %v", f.sizes["a"], want)
		}
		if f.most > groupsPerSale {
			t.Errorf("%d groups of one sale at once", f.most)
		}
		synctest.Wait()
		if len(g.sales) != 0 || g.waiting != 0 {
			t.Errorf("left behind: %d sales, %d waiting", len(g.sales), g.waiting)
		}
	})
}

func TestWhoWaitedTooLongDoesNotBuy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f, g := newFake(release)
		errs := make(chan error, 10)
		for range groupsPerSale {
			go func() { _, err := g.decide(context.Background(), Request{SaleID: "a"}, 1); errs <- err }()
			synctest.Wait()
		}
		go func() { _, err := g.decide(context.Background(), Request{SaleID: "a"}, 2); errs <- err }()
		synctest.Wait()
		<-time.After(g.timeout + time.Millisecond) // by the bubble's clock
		go func() { _, err := g.decide(context.Background(), Request{SaleID: "a"}, 3); errs <- err }()
		synctest.Wait()
		close(release)
		failed := 0
		for range groupsPerSale + 2 {
			if <-errs != nil {
				failed++
			}
		}
		if failed != 1 || fmt.Sprint(f.sizes["a"]) != "[1 1 1]" {
			t.Errorf("%d failed, want the one that waited; groups of %v", failed, f.sizes["a"])
		}
	})
}

func TestCallerWhoGivesUpLeavesTheOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		_, g := newFake(release)
		ctx, cancel := context.WithCancel(context.Background())
		gone, stays := make(chan error, 1), make(chan error, 1)
		go func() { _, err := g.decide(ctx, Request{SaleID: "a"}, 1); gone <- err }()
		go func() { _, err := g.decide(context.Background(), Request{SaleID: "a"}, 2); stays <- err }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("who gave up got %v", err)
		}
		close(release)
		if err := <-stays; err != nil {
			t.Errorf("who stayed got %v", err)
		}
	})
}

// A hot sale fills what is free, and takes no place from the others: each sale that somebody waits for has its share.
func TestCrowdIsBoundedBySale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		_, g := newFake(release)
		var wg sync.WaitGroup
		ask := func(saleID string, n int) {
			for range n {
				wg.Go(func() { _, _ = g.decide(context.Background(), Request{SaleID: saleID}, 1) })
			}
			synctest.Wait()
		}
		refused := func(saleID string) {
			t.Helper()
			if _, err := g.decide(context.Background(), Request{SaleID: saleID}, 1); !errors.Is(err, errTooManyWaiting) {
				t.Errorf("one more of sale %s than may wait: %v", saleID, err)
			}
		}
		fill := func(saleID string, n int) {
			for range groupsPerSale { // these are under way, and do not wait
				ask(saleID, 1)
			}
			ask(saleID, n)
			if got := len(g.sales[saleID].waiting); got != n {
				t.Errorf("%d wait for sale %s, want %d", got, saleID, n)
			}
		}
		fill("hot", maxWaiting)
		refused("hot")
		fill("warm", maxWaiting/2)
		refused("warm")
		refused("hot")
		fill("cool", maxWaiting/3)
		refused("cool")
		fill("late", maxWaitingTotal-g.waiting)
		refused("late")
		refused("new")
		close(release)
		wg.Wait()
		if _, err := g.decide(context.Background(), Request{SaleID: "new"}, 1); err != nil {
			t.Errorf("after the crowd: %v", err)
		}
	})
}
