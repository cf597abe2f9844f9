package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/queue"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

// rowsLoad is an open load: orders arrive at a fixed rate, independent of the outcome of earlier ones.
type rowsLoad struct {
	rounds  int
	seconds float64
	rate    float64 // 0: half of what the slowest side writes
}

// rowsResult is how long orders took from the instant at which they were due to be pushed until their row was
// committed.
type rowsResult struct {
	Fsync string    `json:"appendfsync"`
	Name  string    `json:"name"`
	Rate  float64   `json:"arrivals_per_second"`
	P50   []float64 `json:"p50_ms"` // of each round
	P99   []float64 `json:"p99_ms"`
	// Shares are our latency divided by this one's, round by round; empty for ourselves.
	Share50 []float64 `json:"p50_of_ours_to_this,omitempty"`
	Share99 []float64 `json:"p99_of_ours_to_this,omitempty"`
}

// route is one way from an accepted order to its row. start consumes until ctx ends; done is closed when every
// consumer has returned.
type route struct {
	name  string
	start func(ctx context.Context, db worker.Store) (push func(context.Context, sale.Order) error, done func(), err error)
}

const (
	oursName    = "list and worker, as they are"
	asynqAsItIs = "asynq, as it is"
	asynqMost   = 20 // concurrent tasks; the store has four connections
)

// acceptedToRow compares what each order waits for: our queue and worker, raw streams, and asynq, all with the same
// handler, which writes into the same PostgreSQL (fsync on) what it is given: our worker and the streams in batches,
// asynq, which knows no batches below a second, one by one.
func acceptedToRow(ctx context.Context, s *stage, load rowsLoad, fsync string) ([]rowsResult, error) {
	w, err := newWriters(ctx, s, testenv.StartPostgres(s).URL, settings{})
	if err != nil {
		return nil, err
	}
	server := testenv.StartRedis(s, fsyncArgs(fsync)...)
	client, err := redisconn.Open(server.URL)
	if err != nil {
		return nil, err
	}
	s.Cleanup(func() { _ = client.Close() })
	r := &rowsRun{writers: w, redis: server.Client()}
	routes := []route{
		{oursName, ours(client)},
		{"raw streams, COUNT 100", streams(server.Client())},
		{asynqAsItIs, throughAsynq(server.Addr, 0)},
		{"asynq, looking every millisecond", throughAsynq(server.Addr, time.Millisecond)},
	}
	if load.rate == 0 {
		capacity, err := r.capacity(ctx, routes)
		if err != nil {
			return nil, err
		}
		load.rate = math.Floor(capacity / 2)
	}
	results := make([]rowsResult, len(routes))
	for i, way := range routes {
		results[i] = rowsResult{Fsync: fsync, Name: way.name, Rate: load.rate}
	}
	for round := range load.rounds + 1 {
		turn := make([]int, len(routes))
		for i := range turn {
			turn[i] = i
		}
		if round%2 == 1 {
			slices.Reverse(turn)
		}
		for _, i := range turn {
			waits, err := r.run(ctx, routes[i], int(load.rate*load.seconds), load.rate)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", routes[i].name, err)
			}
			p50, p99 := quantile(waits, 0.5), quantile(waits, 0.99)
			fmt.Fprintf(
				os.Stderr,
				"%-9s round %d  %-36s p50 %8.2f ms  p99 %8.2f ms  at %s/s\n",
				"rows",
				round,
				routes[i].name,
				p50,
				p99,
				number(load.rate),
			)
			if round > 0 {
				results[i].P50, results[i].P99 = append(results[i].P50, p50), append(results[i].P99, p99)
			}
		}
	}
	for i := range results[1:] {
		other := &results[i+1]
		for k := range other.P50 {
			other.Share50 = append(other.Share50, results[0].P50[k]/other.P50[k])
			other.Share99 = append(other.Share99, results[0].P99[k]/other.P99[k])
		}
	}
	return results, nil
}

type rowsRun struct {
	*writers
	redis *redis.Client
}

// capacity is how many orders a second the slowest route writes when they wait for it. That asynq which sleeps a
// second before it begins is left out: the other one shows what it can do.
func (r *rowsRun) capacity(ctx context.Context, routes []route) (float64, error) {
	least := math.Inf(1)
	for _, way := range routes {
		if way.name == asynqAsItIs {
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

// run sends n orders on their way and returns what each of them waited, in milliseconds, sorted.
func (r *rowsRun) run(ctx context.Context, way route, n int, rate float64) ([]float64, error) {
	if err := errors.Join(r.fresh(ctx), r.redis.FlushAll(ctx).Err()); err != nil {
		return nil, err
	}
	orders := newOrders(r.ids, 0, n)
	watch := &watch{database: r.store, committed: make([]atomic.Int64, n), tally: newTally(n)}
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
	slices.Sort(waits)
	return waits, r.count(ctx, "orders", n)
}

// arrive pushes each order when it is due. Enough hands push that a slow push delays no other.
func arrive(
	ctx context.Context,
	orders []sale.Order,
	due func(int) time.Time,
	push func(context.Context, sale.Order) error,
) error {
	const hands = 16
	var all sync.WaitGroup
	errs := make([]error, hands)
	for h := range hands {
		all.Go(func() {
			for i := h; i < len(orders) && errs[h] == nil; i += hands {
				time.Sleep(time.Until(due(i)))
				errs[h] = push(ctx, orders[i])
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// watch notes when an order has been committed first.
type watch struct {
	*database
	committed []atomic.Int64 // ns since 1970, by serial
	tally     *tally
}

// Write is the store's.
func (w *watch) Write(ctx context.Context, orders []sale.Order) error {
	if err := w.database.Write(ctx, orders); err != nil {
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

func ours(
	client *redis.Client,
) func(context.Context, worker.Store) (func(context.Context, sale.Order) error, func(), error) {
	return func(ctx context.Context, db worker.Store) (func(context.Context, sale.Order) error, func(), error) {
		q := queue.NewList(client, 0, queue.Config{})
		var all sync.WaitGroup
		all.Go(func() { _ = worker.New(q, db, worker.Config{Log: slog.New(slog.DiscardHandler)}).Run(ctx) })
		push := func(ctx context.Context, o sale.Order) error { return q.Push(ctx, o) }
		return push, all.Wait, nil
	}
}

// quantile of sorted values.
func quantile(sorted []float64, q float64) float64 {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
