package assemble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/backend/queue"
	"sluice/backend/recovery/guard"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/worker"
	"sluice/internal/loop"
)

// Drivers of the queue: where accepted orders wait in Redis. Every process serves both; the setting selects where a
// backend puts new orders.
const (
	DriverList   = "list"
	DriverStream = "stream"
)

func openQueues(guards *guard.Shards, space keyspace.Space, driver string, cfg queue.Config) []*queue.List {
	cfg.Stream, cfg.Deployment = driver == DriverStream, guards.Deployment
	queues := make([]*queue.List, len(space.All()))
	for i, shard := range space.All() {
		queues[i] = queue.NewList(guards.Of(shard).Client(), shard, cfg)
	}
	return queues
}

// WorkerConfig configures RunWorker. Concurrency and Batch are required.
type WorkerConfig struct {
	Concurrency int // batches of each shard written concurrently
	Batch       int // maximum orders in a batch
	NoWatcher   bool
	Counters    *worker.Counters
}

// RunWorker runs a worker in each shard, so that no shard waits for another, until ctx ends and the leased batches are
// finished. A watcher runs beside it unless cfg.NoWatcher is set.
func (s *Stores) RunWorker(ctx context.Context, cfg WorkerConfig) error {
	g, ctx := errgroup.WithContext(ctx)
	for shard, q := range s.queues {
		w := worker.New(q, s.tables, worker.Config{
			Concurrency: cfg.Concurrency, Batch: cfg.Batch, Metrics: cfg.Counters, Log: s.log, ConsumerName: consumerNames(),
			Source: s.restorer(keyspace.Shard(shard)), Shard: shard, Tracer: s.tracer, Parents: s.parents,
		})
		g.Go(func() error {
			awaitVerified(ctx, s.guards.Of(keyspace.Shard(shard)))
			return w.Run(ctx)
		})
	}
	if !cfg.NoWatcher {
		g.Go(func() error { return runWatchers(ctx, s.guards, s.queues, s.log) })
	}
	return g.Wait()
}

// consumerNames returns a function that generates names. They begin with the host and the process id, so that a lease
// in Redis names its owner.
func consumerNames() func() string {
	host, _ := os.Hostname()
	owner := fmt.Sprintf("%s-%d-", strings.Map(func(r rune) rune {
		if r == '{' || r == '}' || r <= ' ' || r > '~' { // braces are hash tags of keys
			return '_'
		}
		return r
	}, host), os.Getpid())
	return func() string { return owner + queue.NewConsumerName() }
}

// RunWatcher requeues expired leases until ctx ends. It uses no database: Redis records the number of shards and
// whether its data was verified, and a watcher does not rebuild. Database and Tracer of cfg are ignored.
func RunWatcher(ctx context.Context, cfg StoresConfig) error {
	space := keyspace.Space{Shards: cfg.Shards}
	g, err := openGuards(ctx, cfg, 0)
	if err != nil {
		return err
	}
	defer g.Close()
	// if Redis does not answer, the process waits and the guard checks again
	if err := guard.CheckOwner(ctx, g.Raw(), 0, guard.Owner{Shards: len(space.All())}); err != nil {
		if wrong, ok := errors.AsType[*guard.ShardsError](err); ok {
			return usage("%w", wrong)
		}
	}
	guarding, stop := context.WithCancel(ctx)
	defer stop()
	go func() { _ = g.Run(guarding, noSQL{}, nil) }()
	cfg.Log.Info("watcher is up", "shards", cfg.Shards)
	return runWatchers(ctx, g, openQueues(g, space, cfg.Driver, cfg.Queue), cfg.Log)
}

// noSQL is a database that is never available.
type noSQL struct{}

func (noSQL) Generation(context.Context, int) (deployment, generation int64, err error) {
	return 0, 0, sale.ErrUnavailable
}

// runWatchers runs a watcher in each shard until ctx ends.
func runWatchers(ctx context.Context, guards *guard.Shards, queues []*queue.List, log *slog.Logger) error {
	g, ctx := errgroup.WithContext(ctx)
	for shard, q := range queues {
		g.Go(func() error {
			awaitVerified(ctx, guards.Of(keyspace.Shard(shard)))
			return (&queue.Watcher{Queue: q, Log: log}).Run(ctx)
		})
	}
	return g.Wait()
}

// AwaitIdle waits until no order is queued, at most ten seconds.
func (s *Stores) AwaitIdle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	waits := func(q *queue.List) bool { empty, err := q.Empty(ctx); return err != nil || !empty }
	for ctx.Err() == nil {
		if !slices.ContainsFunc(s.queues, waits) {
			return
		}
		loop.Sleep(ctx, 20*time.Millisecond)
	}
	s.log.Warn("the queue is not empty; its orders stay in the data directory for the next start")
}
