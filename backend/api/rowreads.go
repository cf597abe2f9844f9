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
// Under load the requests are gathered, because one query costs as much as the reading of several rows. A query for at
// least busyRead and less than rowsPerRead/2 rows indicates load: no other query starts while it runs, and for
// gatherPause after it. Queries for fewer or more rows delay no others. It is safe for concurrent use.
type rowReads struct {
	rows  Rows
	reads *deadlines // of the queries

	inFlight chan struct{} // holds a token for each query

	mu      sync.Mutex
	waiting []*rowRead // oldest first
	running bool       // whether run is running
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

func newRowReads(rows Rows, reads *deadlines) *rowReads {
	return &rowReads{rows: rows, reads: reads, inFlight: make(chan struct{}, rowReadsInFlight)}
}

// Order is Rows.Order. It returns when ctx ends at the latest.
func (r *rowReads) Order(ctx context.Context, id sale.OrderID) (sale.Order, error) {
	one := &rowRead{id: id, done: make(chan struct{})}
	r.mu.Lock()
	r.waiting = append(r.waiting, one)
	if !r.running {
		r.running = true
		go r.run()
	}
	r.mu.Unlock()
	select {
	case <-one.done:
		return one.order, one.err
	case <-ctx.Done():
		return sale.Order{}, fmt.Errorf("read order %s: %w: %w", id, sale.ErrUnavailable, ctx.Err())
	}
}

// run starts queries until no request waits.
func (r *rowReads) run() {
	for {
		r.inFlight <- struct{}{}
		group := r.next()
		if n := len(group); n >= busyRead && n < rowsPerRead/2 {
			r.read(group)
			time.Sleep(gatherPause)
			continue
		} else if n == 0 {
			<-r.inFlight
			return
		}
		go r.read(group)
	}
}

// next takes the oldest requests, at most rowsPerRead. If there is none, run ends.
func (r *rowReads) next() []*rowRead {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.waiting), rowsPerRead)
	group := slices.Clone(r.waiting[:n])
	r.waiting = slices.Delete(r.waiting, 0, n)
	r.running = n > 0
	return group
}

// read answers a group and removes its token from inFlight.
func (r *rowReads) read(group []*rowRead) {
	if one := group[0]; len(group) == 1 {
		one.order, one.err = r.rows.Order(r.reads.next(), one.id)
	} else {
		r.readSeveral(group)
	}
	<-r.inFlight
	for _, one := range group {
		close(one.done)
	}
}

func (r *rowReads) readSeveral(group []*rowRead) {
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
