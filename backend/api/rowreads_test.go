package api

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/sale"
	"sluice/internal/gather"
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
		<-time.After(gather.Pause) // of the fake clock: a turn ends
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
		<-time.After(gather.Pause) // of the fake clock: a turn ends
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
		<-time.After(gather.Pause) // of the fake clock: a turn ends
	})
}
