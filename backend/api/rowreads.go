package api

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sluice/backend/sale"
)

// rowReads merges concurrent status queries into SQL queries for several rows. Each row is read after its request has
// arrived. While fewer than rowReadsInFlight queries are in flight, a request starts one immediately; otherwise it
// joins the next one.
//
// Under load the requests are gathered, because a query costs as much as several rows. After a query for at least
// busyRead and less than rowsPerRead/2 rows, a single goroutine waits for gatherPause and then runs the next query. Few
// requests and large groups do not wait. It is safe for concurrent use.
type rowReads struct {
	rows  Rows
	reads *deadlines // of the queries

	mu        sync.Mutex
	waiting   []*rowRead // oldest first
	running   int        // goroutines of run
	gathering bool       // one of them gathers requests, and no other may take them
}

const (
	// rowsPerRead bounds the rows of one query.
	rowsPerRead = 64
	// rowReadsInFlight bounds the queries in flight.
	rowReadsInFlight = 4
	// busyRead is the minimum number of rows of a query that indicates load.
	busyRead = 4
	// gatherPause is how long requests are gathered.
	gatherPause = time.Millisecond
)

// rowRead is one request. done is closed when order and err are set.
type rowRead struct {
	id    sale.OrderID
	order sale.Order
	err   error
	done  chan struct{}
}

// Order is Rows.Order. It waits until ctx is done at most.
func (r *rowReads) Order(ctx context.Context, id sale.OrderID) (sale.Order, error) {
	one := &rowRead{id: id, done: make(chan struct{})}
	if r.add(one) {
		go r.run()
	}
	select {
	case <-one.done:
		return one.order, one.err
	case <-ctx.Done():
		return sale.Order{}, fmt.Errorf("read order %s: %w: %w", id, sale.ErrUnavailable, ctx.Err())
	}
}

// run reads groups of rows until no request waits or another goroutine gathers them.
func (r *rowReads) run() {
	gathers := false // this goroutine is the one that gathers
	for {
		group := r.next(gathers)
		if len(group) == 0 {
			return
		}
		r.read(group)
		for _, one := range group {
			close(one.done)
		}
		if gathers = r.gathers(gathers, len(group)); gathers {
			time.Sleep(gatherPause)
		}
	}
}

// add adds a request. If it returns true, the caller starts a goroutine of run.
func (r *rowReads) add(one *rowRead) (start bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, one)
	if r.running >= rowReadsInFlight || r.gathering {
		return false
	}
	r.running++
	return true
}

// next takes the oldest requests, at most rowsPerRead. If it returns none, the calling goroutine of run ends. Its
// parameter gathers is the last result of r.gathers, or false.
func (r *rowReads) next(gathers bool) []*rowRead {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 || r.gathering && !gathers {
		r.running--
		r.gathering = r.gathering && !gathers
		return nil
	}
	n := min(len(r.waiting), rowsPerRead)
	group := slices.Clone(r.waiting[:n])
	r.waiting = slices.Delete(r.waiting, 0, n)
	return group
}

// gathers reports whether a goroutine of run, which has read n rows, waits for gatherPause before its next query.
func (r *rowReads) gathers(already bool, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gathering && !already { // another goroutine does
		return false
	}
	r.gathering = n >= busyRead && n < rowsPerRead/2
	return r.gathering
}

// read sets the results of a group.
func (r *rowReads) read(group []*rowRead) {
	if len(group) == 1 {
		group[0].order, group[0].err = r.rows.Order(r.reads.next(), group[0].id)
		return
	}
	ids := make([]sale.OrderID, len(group))
	for i, one := range group {
		ids[i] = one.id
	}
	found, err := r.rows.OrdersByID(r.reads.next(), ids)
	for _, one := range group {
		order, isRow := found[one.id]
		one.order, one.err = order, err
		if err == nil && !isRow {
			one.err = fmt.Errorf("order %s: %w", one.id, sale.ErrNotFound)
		}
	}
}
