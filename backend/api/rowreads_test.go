package api

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"sluice/backend/sale"
)

// slowRows answers each query after a second of the fake clock. Order n has the buyer "b"; odd orders are not rows.
type slowRows struct {
	mu       sync.Mutex
	queries  int
	inFlight int
	most     int
	err      error
}

func (r *slowRows) Order(ctx context.Context, id sale.OrderID) (sale.Order, error) {
	found, err := r.OrdersByID(ctx, []sale.OrderID{id})
	if o, isRow := found[id]; isRow || err != nil {
		return o, err
	}
	return sale.Order{}, sale.ErrNotFound
}

func (r *slowRows) OrdersByID(_ context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Order, error) {
	r.mu.Lock()
	r.queries++
	r.inFlight++
	r.most = max(r.most, r.inFlight)
	r.mu.Unlock()
	<-time.After(time.Second) // of the fake clock
	r.mu.Lock()
	r.inFlight--
	r.mu.Unlock()
	found := map[sale.OrderID]sale.Order{}
	for _, id := range ids {
		if id%2 == 0 {
			found[id] = sale.Order{ID: id, Buyer: "b"}
		}
	}
	return found, r.err
}

// Status queries that arrive while others are in flight share a query, and each gets its own row.
func TestStatusQueriesShareSQL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &slowRows{}
		reads := &rowReads{rows: rows, reads: &deadlines{timeout: time.Minute}}
		const n = 200
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				id := sale.OrderID(i/2 + 1) // each order twice
				o, err := reads.Order(t.Context(), id)
				if id%2 == 0 && (err != nil || o.ID != id) || id%2 == 1 && !errors.Is(err, sale.ErrNotFound) {
					t.Errorf("order %d: %+v, %v", id, o, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		<-time.After(gatherPause) // of the fake clock: run ends
		if want := rowReadsInFlight + (n-rowReadsInFlight+rowsPerRead-1)/rowsPerRead; rows.queries > want {
			t.Errorf("%d queries for %d requests, want %d", rows.queries, n, want)
		}
		if rows.most > rowReadsInFlight {
			t.Errorf("%d queries in flight", rows.most)
		}
	})
}

// An error of the query is the answer to each of its requests.
func TestStatusQueriesShareErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rows := &slowRows{err: sale.ErrUnavailable}
		reads := &rowReads{rows: rows, reads: &deadlines{timeout: time.Minute}}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if o, err := reads.Order(t.Context(), sale.OrderID(i+1)); !errors.Is(err, sale.ErrUnavailable) {
					t.Errorf("%+v, %v", o, err)
				}
			})
		}
		wg.Wait()
		<-time.After(gatherPause) // of the fake clock: run ends
	})
}

// A request ends at its deadline, and the others of its query get their rows.
func TestStatusQueryEndsAtItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := &rowReads{rows: &slowRows{}, reads: &deadlines{timeout: time.Minute}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if _, err := reads.Order(t.Context(), sale.OrderID(2*i+2)); err != nil {
					t.Error(err)
				}
			})
		}
		if _, err := reads.Order(ctx, 2); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("after the deadline: %v", err)
		}
		wg.Wait()
		<-time.After(gatherPause) // of the fake clock: run ends
	})
}

// gatherer is one goroutine of run.
type gatherer struct {
	group   []*rowRead
	gathers bool
}

// Every request is in exactly one group, oldest first, in any interleaving of goroutines. At most rowReadsInFlight
// groups are in flight, and a goroutine runs while a request waits.
func TestEveryStatusQueryIsInOneGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reads := &rowReads{}
		var goroutines []*gatherer
		added, taken := 0, 0
		next := func(one *gatherer) {
			one.group = reads.next(one.gathers)
			if len(one.group) == 0 {
				goroutines = slices.DeleteFunc(goroutines, func(o *gatherer) bool { return o == one })
			}
			if len(one.group) > rowsPerRead {
				t.Fatalf("a group of %d requests", len(one.group))
			}
			for _, request := range one.group {
				if request.id != sale.OrderID(taken) {
					t.Fatalf("request %d was taken, want %d", request.id, taken)
				}
				taken++
			}
		}
		steps := rapid.IntRange(1, 300).Draw(t, "steps")
		for range steps {
			if len(goroutines) == 0 || rapid.Bool().Draw(t, "add") {
				for range rapid.SampledFrom([]int{1, 1, 5, 20, 80}).Draw(t, "requests") {
					if reads.add(&rowRead{id: sale.OrderID(added)}) {
						goroutines = append(goroutines, &gatherer{})
					}
					added++
				}
			} else {
				one := rapid.SampledFrom(goroutines).Draw(t, "goroutine")
				if len(one.group) > 0 {
					one.gathers = reads.gathers(one.gathers, len(one.group))
					one.group = nil
				}
				if !one.gathers || rapid.Bool().Draw(t, "the pause ends") {
					next(one)
				}
			}
			if len(goroutines) > rowReadsInFlight || len(goroutines) != reads.running {
				t.Fatalf("%d goroutines, counted as %d", len(goroutines), reads.running)
			}
			if waiting := len(reads.waiting); waiting != added-taken || waiting > 0 && len(goroutines) == 0 {
				t.Fatalf("%d requests wait, %d were added and %d taken, %d goroutines", waiting, added, taken, len(goroutines))
			}
		}
	})
}

// While a goroutine gathers, no request starts another one, and the others end.
func TestOneGoroutineGathersAlone(t *testing.T) {
	reads := &rowReads{}
	add := func(n int) (starts int) {
		for range n {
			if reads.add(&rowRead{}) {
				starts++
			}
		}
		return starts
	}
	if starts := add(5); starts != rowReadsInFlight {
		t.Fatalf("%d goroutines started", starts)
	}
	if !reads.gathers(false, len(reads.next(false))) {
		t.Fatal("after a group of 5 the goroutine does not pause")
	}
	if starts := add(6); starts != 0 {
		t.Errorf("%d goroutines started while one gathers", starts)
	}
	if reads.gathers(false, 5) {
		t.Error("a second goroutine gathers")
	}
	for range rowReadsInFlight - 1 {
		if got := reads.next(false); len(got) != 0 {
			t.Errorf("another goroutine took %d requests", len(got))
		}
	}
	if got := reads.next(true); len(got) != 6 {
		t.Errorf("the goroutine gathered %d requests, want 6", len(got))
	}
	if reads.gathers(true, 3) {
		t.Error("the goroutine pauses after a group of 3")
	}
	if starts := add(1); starts != 1 {
		t.Error("no second goroutine starts after the gathering")
	}
}

// Few requests and groups of half the size do not pause.
func TestPauseDependsOnTheGroup(t *testing.T) {
	for n, want := range map[int]bool{1: false, 3: false, 4: true, 31: true, 32: false, 64: false} {
		reads := &rowReads{}
		for range n {
			reads.add(&rowRead{})
		}
		if got := reads.gathers(false, len(reads.next(false))); got != want {
			t.Errorf("after a group of %d: pause %v", n, got)
		}
	}
}
