package main

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/worker"
)

const (
	riverJobs     = 2_000 // in a full queue
	riverWorkers  = 100   // jobs that run concurrently
	riverConns    = 10    // connections to PostgreSQL, beside those of the store
	riverCooldown = 100 * time.Millisecond
	riverAsItIs   = "River, as it is"
	riverBacklog  = "River, an order in each job"
)

// riverOrder are the arguments of a job: one order, encoded as in the queue.
type riverOrder struct {
	Message string `json:"message"`
}

// Kind implements river.JobArgs.
func (riverOrder) Kind() string { return "order" }

// riverWorker writes the order of a job.
type riverWorker struct {
	river.WorkerDefaults[riverOrder]

	store worker.Store
}

// Work implements river.Worker.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[riverOrder]) error {
	o, err := keyspace.DecodeMessage(job.Args.Message)
	if err != nil {
		return err
	}
	return w.store.Write(ctx, []sale.Order{o})
}

// riverQueue is the queue of River in a database.
type riverQueue struct{ pool *pgxpool.Pool }

// newRiver creates River's tables in a database.
func newRiver(s *stage, url string) *riverQueue {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(url)
	s.check(err)
	config.MaxConns = riverConns
	pool, err := pgxpool.NewWithConfig(ctx, config)
	s.check(err)
	s.Cleanup(pool.Close)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	s.check(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	s.check(err)
	return &riverQueue{pool}
}

// open empties the queue and returns a client that does not work yet. It fetches jobs at most once in a cooldown.
func (r *riverQueue) open(
	ctx context.Context, store worker.Store, cooldown time.Duration,
) (*river.Client[pgx.Tx], error) {
	if _, err := r.pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{store: store})
	return river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		FetchCooldown: cooldown, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers: workers, Logger: slog.New(slog.DiscardHandler),
	})
}

// through returns the route of an order in its own job.
func (r *riverQueue) through(cooldown time.Duration) starter {
	return func(ctx context.Context, store worker.Store) (pusher, func(), error) {
		ctx = context.WithoutCancel(ctx) // Stop ends it, when no job runs
		client, err := r.open(ctx, store, cooldown)
		if err != nil {
			return nil, nil, err
		}
		if err := client.Start(ctx); err != nil {
			return nil, nil, err
		}
		push := func(ctx context.Context, o sale.Order) error {
			_, err := client.Insert(ctx, riverOrder{keyspace.EncodeMessage(o)}, nil)
			return err
		}
		return push, func() { _ = client.Stop(ctx) }, nil
	}
}

// jobs measures a queue in which each job has one order.
func (w *writers) jobs(r *riverQueue) measurement {
	return func(ctx context.Context) (float64, error) {
		if err := w.fresh(ctx); err != nil {
			return 0, err
		}
		w.waits = nil
		handled := newTally(riverJobs)
		client, err := r.open(ctx, writeFunc(func(ctx context.Context, orders []sale.Order) error {
			if err := w.Write(ctx, orders); err != nil {
				return err
			}
			handled.add(len(orders))
			return nil
		}), time.Millisecond)
		if err != nil {
			return 0, err
		}
		for batch := range slices.Chunk(w.ids.orders(riverJobs), 1000) {
			var all []river.InsertManyParams
			for _, o := range batch {
				all = append(all, river.InsertManyParams{Args: riverOrder{keyspace.EncodeMessage(o)}})
			}
			if _, err := client.InsertManyFast(ctx, all); err != nil {
				return 0, err
			}
		}
		begin := time.Now()
		if err := client.Start(context.WithoutCancel(ctx)); err != nil {
			return 0, err
		}
		defer func() { _ = client.Stop(context.WithoutCancel(ctx)) }()
		if err := handled.wait(ctx); err != nil {
			return 0, err
		}
		took := time.Since(begin)
		return riverJobs / took.Seconds(), w.count(ctx, "orders", riverJobs)
	}
}

// writeFunc adapts a function to worker.Store.
type writeFunc func(context.Context, []sale.Order) error

// Write implements worker.Store.
func (f writeFunc) Write(ctx context.Context, orders []sale.Order) error { return f(ctx, orders) }
