package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/backend/queue"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

// starter starts the consumers of orders, which write to a store until ctx ends. push accepts an order; done returns
// when every consumer has ended.
type starter func(ctx context.Context, db worker.Store) (push pusher, done func(), err error)

type pusher func(context.Context, sale.Order) error

// route is one way from an accepted order to its row.
type route struct {
	name  string
	start starter
}

const (
	asynqAsItIs = "asynq, as it is"
	asynqMost   = 20  // concurrent tasks; the store has four connections
	rowsTarget  = 0.2 // of asynq's latency
)

// acceptedToRow compares the time from the instant at which an order is due to be pushed until its row is committed.
// Orders arrive at half the rate of the slowest side, independent of earlier ones. All sides have the same handler and
// PostgreSQL (fsync on): our worker and the streams write batches, asynq, whose batches take at least a second, and
// River write one by one. A batch other than perTake is the batch of our worker and of the streams.
func acceptedToRow(ctx context.Context, s *stage, rounds int, seconds float64, fsync string, batch int) error {
	server := testenv.StartRedis(s, fsyncArgs(fsync)...)
	r := &rowsRun{newWriters(s, settings{}, nil), server.Client()}
	jobs := newRiver(s, r.server.URL)
	title := fmt.Sprintf("accepted to row, %s, appendfsync %s", batches(batch), fsync)
	return r.compare(ctx, title, rounds, seconds, []route{
		{"list and worker", ours(openRedis(s, server.URL), batch)},
		{"raw streams", streams(r.redis, streamBatch(batch))},
		{asynqAsItIs, throughAsynq(server.Addr, 0)},
		{"asynq, looking every millisecond", throughAsynq(server.Addr, time.Millisecond)},
		{riverAsItIs, jobs.through(riverCooldown)},
		{"River, looking every millisecond", jobs.through(time.Millisecond)},
	})
}

// batches describes the batch size of a run.
func batches(n int) string {
	if n == perTake {
		return "default batches"
	}
	return fmt.Sprintf("batches of %d", n)
}

// streamBatch returns the batch of streams in a run.
func streamBatch(batch int) int {
	if batch == perTake {
		return perStream
	}
	return batch
}

// compare measures the routes in rounds and prints their latencies; the first one is ours.
func (r *rowsRun) compare(ctx context.Context, title string, rounds int, seconds float64, routes []route) error {
	capacity, err := r.capacity(ctx, routes)
	if err != nil {
		return err
	}
	rate := math.Floor(capacity / 2)
	sides := make([]latency, len(routes))
	for i, way := range routes {
		sides[i] = latency{name: way.name, rate: rate}
	}
	if err := latencies(ctx, "rows", rounds, sides, func(i int) ([]float64, error) {
		return r.run(ctx, routes[i], int(rate*seconds), rate)
	}); err != nil {
		return err
	}
	fmt.Printf("\n%s, %s arrivals/s; ms, median of the rounds (lowest..highest)\n", title, number(rate))
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "name\tp50\tp99\tours to it, p50\tp99\t")
	fmt.Fprintf(t, "%s\t%s\t%s\t\t\t\n", sides[0].name, middle(sides[0].p50), middle(sides[0].p99))
	for _, x := range sides[1:] {
		share50, share99 := divided(sides[0].p50, x.p50), divided(sides[0].p99, x.p99)
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", x.name, middle(x.p50), middle(x.p99), middle(share50), middle(share99),
			rowsVerdict(x.name, share50, share99))
	}
	return t.Flush()
}

// rowsVerdict describes our latency divided by another side's, round by round, relative to the target.
func rowsVerdict(name string, share50, share99 []float64) string {
	switch {
	case name != asynqAsItIs:
		return "for orientation"
	case median(share50) <= rowsTarget && median(share99) <= rowsTarget:
		return fmt.Sprintf("reached (at most %g)", rowsTarget)
	}
	return fmt.Sprintf("missed (at most %g)", rowsTarget)
}

// rowsRun sends orders through one Redis or PostgreSQL into a store.
type rowsRun struct {
	*writers

	redis redisconn.Client
}

// capacity returns the orders per second of the slowest route under full load. asynq and River with their defaults
// sleep between polls and are left out: their faster settings show their capacity.
func (r *rowsRun) capacity(ctx context.Context, routes []route) (float64, error) {
	least := math.Inf(1)
	for _, way := range routes {
		if way.name == asynqAsItIs || way.name == riverAsItIs {
			continue
		}
		const n = 3000
		begin := time.Now()
		if _, err := r.run(ctx, way, n, math.Inf(1)); err != nil {
			return 0, fmt.Errorf("%s: %w", way.name, err)
		}
		perSecond := n / time.Since(begin).Seconds()
		fmt.Fprintf(os.Stderr, "%-9s %-8s %-36s %12s orders/s\n", "rows", "capacity", way.name, number(perSecond))
		least = min(least, perSecond)
	}
	return least, nil
}

// run sends n orders and returns the waiting time of each, in milliseconds.
func (r *rowsRun) run(ctx context.Context, way route, n int, rate float64) ([]float64, error) {
	if err := errors.Join(r.fresh(ctx), r.redis.FlushAll(ctx).Err()); err != nil {
		return nil, err
	}
	orders := r.ids.orders(n)
	watch := &watch{store: r.Store, committed: make([]atomic.Int64, n), tally: newTally(n)}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	push, done, err := way.start(serving, watch)
	if err != nil {
		return nil, err
	}
	defer done()
	defer stop()
	begin := time.Now().Add(50 * time.Millisecond)
	due := func(i int) time.Time { return begin.Add(time.Duration(float64(i) / rate * float64(time.Second))) }
	if err := arrive(ctx, orders, due, push); err != nil {
		return nil, err
	}
	if err := watch.tally.wait(ctx); err != nil {
		return nil, err
	}
	waits := make([]float64, n)
	for i := range waits {
		waits[i] = time.Unix(0, watch.committed[i].Load()).Sub(due(i)).Seconds() * 1e3
	}
	return waits, r.count(ctx, "orders", n)
}

// arrive pushes each order when it is due, from enough goroutines that a slow push delays no other.
func arrive(ctx context.Context, orders []sale.Order, due func(int) time.Time, push pusher) error {
	const pushers = 16
	var all errgroup.Group
	for h := range pushers {
		all.Go(func() (err error) {
			for i := h; i < len(orders) && err == nil; i += pushers {
				time.Sleep(time.Until(due(i)))
				err = push(ctx, orders[i])
			}
			return err
		})
	}
	return all.Wait()
}

// watch is a store that records when each order was first committed.
type watch struct {
	store     worker.Store
	committed []atomic.Int64 // ns since 1970, by serial
	tally     *tally
}

// Write is the store's.
func (w *watch) Write(ctx context.Context, orders []sale.Order) error {
	if err := w.store.Write(ctx, orders); err != nil {
		return err
	}
	now := time.Now().UnixNano()
	for _, o := range orders {
		if w.committed[o.Serial-1].CompareAndSwap(0, now) {
			w.tally.add(1)
		}
	}
	return nil
}

func ours(client redisconn.Client, batch int) starter {
	return func(ctx context.Context, db worker.Store) (pusher, func(), error) {
		q := queue.NewList(client, 0, queue.Config{})
		var all sync.WaitGroup
		all.Go(func() {
			_ = worker.New(q, db, worker.Config{Batch: batch, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
		})
		push := func(ctx context.Context, o sale.Order) error { return q.Push(ctx, o) }
		return push, all.Wait, nil
	}
}
