// Package worker writes queued orders to SQL: it leases a batch, writes it in one transaction, and acknowledges it
// after the commit. If a worker crashes in between, the lease expires and another worker writes the batch again,
// which changes nothing.
//
// The package does not validate orders. An order that the store rejects becomes a dead letter.
package worker

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/telemetry"
	"sluice/internal/loop"
)

// Queue is the part of queue.List that a worker calls.
type Queue interface {
	Register(ctx context.Context, name string) (queue.Consumer, error)
	TakeAs(ctx context.Context, id string, limit int, ack string) (b queue.Batch, lost bool, err error)
	Ack(ctx context.Context, batchID string, failures ...queue.Failure) (lost bool, err error)
	Release(ctx context.Context, batchID string) (lost bool, err error)
	Extend(ctx context.Context, batchID string) (lost bool, err error)
	Lease() time.Duration
	Wait(ctx context.Context, timeout time.Duration) (woken bool, err error)
	Empty(ctx context.Context) (bool, error)
}

// Store writes orders to SQL. Write stores all orders or none. Writing an order again changes nothing.
//
// An error that wraps store.ErrRejected means that some of the orders can never be stored. An error that wraps
// sale.ErrUnavailable is temporary.
type Store interface {
	Write(ctx context.Context, orders []sale.Order) error
}

// Source identifies the Redis data that batches are taken from, and restores orders after a rebuild of Redis.
type Source interface {
	// Generation returns the generation of the Redis that executes the next call, or an older one.
	Generation() int64
	// RestoreOrders ensures that each order is a row in SQL or queued in Redis. It may be repeated. It returns the
	// orders that it cannot restore, because their sale is archived or not in SQL.
	RestoreOrders(ctx context.Context, orders []sale.Order) (skipped []sale.Order, err error)
}

// Config configures a Worker. Fields that are zero or negative take the defaults in their comments.
type Config struct {
	Concurrency  int            // batches written concurrently; 2
	Batch        int            // maximum orders in a batch; 500
	Idle         time.Duration  // duration of one wait for the wake-up token of an empty queue; 1 s
	Gather       time.Duration  // pause after a batch of 8 orders or more that is not full; 10 ms
	WriteTimeout time.Duration  // timeout of one write, in addition to the store's own; 30 s
	MaxBackoff   time.Duration  // longest pause between attempts during an outage; 2 s
	DrainTimeout time.Duration  // maximum duration of a write in progress after ctx of Run is cancelled; 10 s
	Jitter       func() float64 // fraction of the longest pause, in [0,1); default uniformly random ("full jitter")
	ConsumerName func() string  // returns names of consumers, unique over all processes; queue.NewConsumerName
	Metrics      Metrics        // nil: no metrics
	Source       Source         // nil: Redis is never rebuilt
	Shard        int            // number of the shard that the queue and Source belong to
	Log          *slog.Logger   // slog.Default()

	Tracer  *telemetry.Tracer  // nil: no spans
	Parents *telemetry.Parents // finds the traces of the orders; required with Tracer
}

func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(max(c.Concurrency, 0), 2)
	c.Batch = cmp.Or(max(c.Batch, 0), 500)
	c.Idle = cmp.Or(max(c.Idle, 0), time.Second)
	c.Gather = cmp.Or(max(c.Gather, 0), 10*time.Millisecond)
	c.WriteTimeout = cmp.Or(max(c.WriteTimeout, 0), 30*time.Second)
	c.MaxBackoff = cmp.Or(max(c.MaxBackoff, 0), 2*time.Second)
	c.DrainTimeout = cmp.Or(max(c.DrainTimeout, 0), 10*time.Second)
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	if c.ConsumerName == nil {
		c.ConsumerName = queue.NewConsumerName
	}
	if c.Metrics == nil {
		c.Metrics = NewCounters(prometheus.NewRegistry())
	}
	c.Log = cmp.Or(c.Log, slog.Default())
	return c
}

// Worker writes the orders of one queue into one store.
type Worker struct {
	queue   Queue
	store   Store
	cfg     Config
	waiting chan struct{} // holds an element while a loop waits in Redis on behalf of all loops
}

// New returns a Worker. Run starts it.
func New(q Queue, store Store, cfg Config) *Worker {
	return &Worker{queue: q, store: store, cfg: cfg.withDefaults(), waiting: make(chan struct{}, 1)}
}

// Run writes batches until ctx is cancelled, then returns nil. It retries for as long as SQL or Redis is unavailable.
//
// On shutdown Run takes no further batch. A write in progress may finish within DrainTimeout and is acknowledged. A
// batch that was not written is released, so that another worker takes it immediately. Run may be called
// concurrently, in this and in other processes.
func (w *Worker) Run(ctx context.Context) error {
	hard, stop := loop.Outlive(ctx, w.cfg.DrainTimeout)
	defer stop()

	var loops sync.WaitGroup
	for range w.cfg.Concurrency {
		loops.Go(func() { (&batchLoop{Worker: w, stopping: ctx, hard: hard, calls: context.WithoutCancel(ctx)}).run() })
	}
	loops.Wait()
	return nil
}
