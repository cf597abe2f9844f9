package api

import (
	"context"
	"errors"
	"fmt"
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
	groups   [][]sale.OrderID // of each query
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
	r.groups = append(r.groups, slices.Clone(ids))
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
		reads := newRowReads(rows, &deadlines{timeout: time.Minute})
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
		if want := rowReadsInFlight + (n-rowReadsInFlight+rowsPerRead-1)/rowsPerRead; len(rows.groups) > want {
			t.Errorf("%d queries for %d requests, want %d", len(rows.groups), n, want)
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
		reads := newRowReads(rows, &deadlines{timeout: time.Minute})
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
		reads := newRowReads(&slowRows{}, &deadlines{timeout: time.Minute})
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

// Every request is in exactly one query, oldest first, for any times of arrival.
func TestEveryStatusQueryIsInOneGroup(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pauses := rapid.SliceOfN(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1, 300, 1500}), 1, 300).Draw(rt, "milliseconds")
		rows := &slowRows{}
		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			reads := newRowReads(rows, &deadlines{timeout: time.Hour})
			var wg sync.WaitGroup
			for i, pause := range pauses {
				<-time.After(time.Duration(pause) * time.Millisecond) // of the fake clock
				wg.Go(func() {
					id := sale.OrderID(2*i + 2)
					if o, err := reads.Order(t.Context(), id); err != nil || o.ID != id {
						rows.mu.Lock()
						wrong = append(wrong, fmt.Sprint(id, o, err))
						rows.mu.Unlock()
					}
				})
				synctest.Wait()
			}
			wg.Wait()
			<-time.After(gatherPause) // of the fake clock: run ends
		})
		n := 0
		for _, group := range rows.groups {
			for _, id := range group {
				if n++; id != sale.OrderID(2*n) {
					rt.Fatalf("query for order %d, want %d", id, 2*n)
				}
			}
			if len(group) > rowsPerRead {
				rt.Fatalf("a query for %d rows", len(group))
			}
		}
		if len(wrong) > 0 || n != len(pauses) || rows.most > rowReadsInFlight {
			rt.Fatalf("%d requests were read, want %d; %d queries in flight; wrong: %v", n, len(pauses), rows.most, wrong)
		}
	})
}

// While a query for a few rows runs, and for a pause after it, further requests are gathered. Few requests and large
// groups do not wait.
func TestRequestsAreGatheredUnderLoad(t *testing.T) {
	for n, gathers := range map[int]bool{1: false, 3: false, 4: true, 31: true, 32: false, 64: false} {
		synctest.Test(t, func(t *testing.T) {
			rows := &slowRows{}
			reads := newRowReads(rows, &deadlines{timeout: time.Hour})
			var wg sync.WaitGroup
			request := func(count int) {
				for range count {
					wg.Go(func() { _, _ = reads.Order(t.Context(), 2) })
					synctest.Wait()
				}
			}
			wantQueries := func(when string, want int) {
				t.Helper()
				synctest.Wait()
				rows.mu.Lock()
				defer rows.mu.Unlock()
				if len(rows.groups) != want {
					t.Errorf("group of %d: %d queries %s, want %d", n, len(rows.groups), when, want)
				}
			}
			request(rowReadsInFlight)
			request(n)                                   // wait for one of the queries
			<-time.After(time.Second + time.Millisecond) // of the fake clock, like all below
			wantQueries("after the first ones", rowReadsInFlight+1)
			request(1)
			request(1)
			if !gathers {
				wantQueries("while the group is read", rowReadsInFlight+3)
				wg.Wait()
			} else {
				wantQueries("while the group is read", rowReadsInFlight+1)
				<-time.After(time.Second - time.Millisecond) // the pause begins
				wantQueries("during the pause", rowReadsInFlight+1)
				<-time.After(gatherPause)
				wantQueries("after the pause", rowReadsInFlight+2)
				wg.Wait()
			}
			<-time.After(gatherPause) // run ends
		})
	}
}
