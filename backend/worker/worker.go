// Package worker turns queued orders into rows: it takes a batch, writes it, and acknowledges it only then. Whatever happens in between, the batch is
// written again by somebody, and the second time changes nothing.
//
// It never decides whether an order is right: the order store does. It never drops one either: what the store refuses goes to the dead letters.
package worker

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
)

// Leaser is where batches come from (queue.List).
type Leaser interface {
	TakeAs(ctx context.Context, id string, limit int, ack string) (b queue.Batch, lost bool, err error)
	Ack(ctx context.Context, batchID string, failures ...queue.Failure) (lost bool, err error)
	Release(ctx context.Context, batchID string) (lost bool, err error)
	Extend(ctx context.Context, batchID string) (lost bool, err error)
	Lease() time.Duration
}

// Waiter tells when there may be something to take (queue.List).
type Waiter interface {
	Wait(ctx context.Context, timeout time.Duration) (woken bool, err error)
}

// Queue is what a worker works off.
type Queue interface {
	Leaser
	Waiter
}

// Store is where orders go (order.Store). Write stores all of them or none, and storing the same order again changes nothing.
//
// An error that wraps order.ErrRejected means that some of the orders can never be stored. One that wraps sale.ErrUnavailable is nobody's fault and passes.
type Store interface {
	Write(ctx context.Context, orders []sale.Order) error
}

// Source tells which Redis batches are taken from, should it lose data and be rebuilt (epoch.Guard and rebuild.Adopter).
type Source interface {
	// Generation is that of the Redis that answers the next call, or an older one.
	Generation() int64
	// HandBack makes sure that each of the orders is a row, or known to the Redis that answers now. It may be repeated.
	HandBack(ctx context.Context, orders []sale.Order) error
}

// Tracer shows what becomes of batches (trace.Orders). Neither call may take long. The context that Begin returns carries the span, and ends when ctx does.
type Tracer interface {
	Begin(ctx context.Context, orders []sale.Order) (_ context.Context, end func(failed map[sale.OrderID]string, err error))
}

// Config tunes a Worker. Zero fields take the defaults named here.
type Config struct {
	Concurrency  int            // batches written at once; 2
	Batch        int            // orders in a batch at most; 500
	Idle         time.Duration  // longest wait for news when the queue is empty; 1 s
	WriteTimeout time.Duration  // bound of one write, beyond what the store itself keeps to; 30 s
	MaxBackoff   time.Duration  // longest pause while a store is down; 2 s
	DrainTimeout time.Duration  // how long a write may go on after Run was told to stop; 10 s
	Jitter       func() float64 // share of the longest pause that is waited, in [0,1); uniformly random ("full jitter")
	BatchID      func() string  // makes the ids of batches, no two alike in all processes; queue.NewBatchID
	Metrics      Metrics        // nil: nothing is counted
	Tracer       Tracer         // nil: nothing is traced
	Source       Source         // which Redis batches come from; nil: always the same
	Log          *slog.Logger   // slog.Default()
}

func (c Config) withDefaults() Config {
	for _, f := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&c.Idle, time.Second}, {&c.WriteTimeout, 30 * time.Second}, {&c.MaxBackoff, 2 * time.Second}, {&c.DrainTimeout, 10 * time.Second},
	} {
		if *f.value <= 0 {
			*f.value = f.def
		}
	}
	if c.Concurrency <= 0 {
		c.Concurrency = 2
	}
	if c.Batch <= 0 {
		c.Batch = 500
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	if c.BatchID == nil {
		c.BatchID = queue.NewBatchID
	}
	if c.Metrics == nil {
		c.Metrics = uncounted{}
	}
	if c.Tracer == nil {
		c.Tracer = untraced{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

type untraced struct{}

func (untraced) Begin(ctx context.Context, _ []sale.Order) (context.Context, func(map[sale.OrderID]string, error)) {
	return ctx, ended
}

func ended(map[sale.OrderID]string, error) {}

// Worker writes the orders of one queue into one store.
type Worker struct {
	queue Queue
	store Store
	cfg   Config
}

// New makes a Worker. It does nothing until Run.
func New(q Queue, store Store, cfg Config) *Worker {
	return &Worker{queue: q, store: store, cfg: cfg.withDefaults()}
}

// Run works until ctx is cancelled, and then returns nil; stores that are down are waited for. Shutting down goes in this order: nothing more is taken;
// a write that is under way may finish within DrainTimeout and is acknowledged; what could not be written is released, so that
// another worker gets it at once. Several Runs may go on at once, here and in other processes.
func (w *Worker) Run(ctx context.Context) error {
	hard, abort := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abort(nil)
	stop := context.AfterFunc(ctx, func() {
		drained := time.AfterFunc(w.cfg.DrainTimeout, func() { abort(errDrained) })
		<-hard.Done()
		drained.Stop()
	})
	defer stop()

	var loops sync.WaitGroup
	for range w.cfg.Concurrency {
		loops.Go(func() { (&loop{Worker: w, stopping: ctx, hard: hard, calls: context.WithoutCancel(ctx)}).run() })
	}
	loops.Wait()
	return nil
}
