package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sluice/backend/sale"
	"sluice/internal/gather"
)

// rowReads merges concurrent status queries into SQL queries for several rows. Each row is read after its request has
// arrived. It is safe for concurrent use.
type rowReads struct {
	rows  Rows
	reads *deadlines // of the queries

	idle sync.Pool // of *rowRead

	mu    sync.Mutex
	queue gather.Queue[*rowRead]
}

const (
	// rowsPerRead bounds the rows of one query.
	rowsPerRead = 64
	// rowReadsInFlight bounds the queries in flight.
	rowReadsInFlight = 4
)

// rowRead is one request. done receives one value when order and err are set.
type rowRead struct {
	id    sale.OrderID
	order sale.Order
	err   error
	done  chan struct{}
}

func newRowReads(rows Rows, reads *deadlines) *rowReads {
	return &rowReads{
		rows: rows, reads: reads, queue: gather.Queue[*rowRead]{Limit: rowReadsInFlight, Size: rowsPerRead},
	}
}

// Order is Rows.Order. It waits until ctx is done at most.
func (r *rowReads) Order(ctx context.Context, id sale.OrderID) (sale.Order, error) {
	one, _ := r.idle.Get().(*rowRead)
	if one == nil {
		one = &rowRead{done: make(chan struct{}, 1)}
	}
	one.id = id
	r.mu.Lock()
	start := r.queue.Add(one)
	r.mu.Unlock()
	if start {
		go r.run()
	}
	select {
	case <-one.done:
		o, err := one.order, one.err
		r.idle.Put(one)
		return o, err
	case <-ctx.Done(): // the query still uses one
		return sale.Order{}, fmt.Errorf("read order %s: %w: %w", id, sale.ErrUnavailable, ctx.Err())
	}
}

// run reads groups of rows until no request waits or another goroutine gathers them.
func (r *rowReads) run() {
	var group []*rowRead
	var turn gather.Turn
	for {
		r.mu.Lock()
		group = r.queue.Next(&turn, group[:0])
		r.mu.Unlock()
		if len(group) == 0 {
			return
		}
		r.read(group)
		for _, one := range group {
			one.done <- struct{}{}
		}
		r.mu.Lock()
		pause := r.queue.Done(&turn, len(group))
		r.mu.Unlock()
		if pause {
			time.Sleep(gather.Pause)
		}
	}
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
