package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"sluice/backend/queue"
	"sluice/backend/telemetry"
	"sluice/backend/worker"
)

type workerConfig struct {
	storesConfig
	concurrency int // of each shard
	batch       int
	lease       time.Duration
	noWatcher   bool
	metrics     string
}

// A lease below a second would run out while one call to Redis waits; one above an hour would keep orders of a dead
// worker for as long.
const (
	minLease = time.Second
	maxLease = time.Hour
)

func (p *program) workerFlags(c *cobra.Command, cfg *workerConfig) {
	f := c.Flags()
	p.str(f, &cfg.redisURL, "redis", envRedis, "", redisHelp)
	p.str(f, &cfg.database, "database", envDatabase, "", "order store, postgres://... or sqlite:...")
	p.shardsFlag(f, &cfg.shards)
	p.driverFlag(f, &cfg.queue)
}

func (cfg workerConfig) check(needDatabase bool) error {
	var bad problems
	if cfg.redisURL == "" {
		bad.add("no Redis: set %s or --redis", envRedis)
	} else {
		bad.checkRedis("--redis", cfg.redisURL)
	}
	bad.checkShards(cfg.shards)
	bad.checkDriver(cfg.queue)
	if needDatabase && cfg.database == "" {
		bad.add("no database: set %s or --database", envDatabase)
	}
	if needDatabase && (cfg.concurrency < 1 || cfg.concurrency > 64) {
		bad.add("--concurrency must be between 1 and 64")
	} else if cfg.shards*cfg.concurrency > 256 {
		bad.add("--concurrency %d in each of %d shards is more than 256 in all", cfg.concurrency, cfg.shards)
	}
	if needDatabase && (cfg.batch < 1 || cfg.batch > queue.MaxBatch) {
		bad.add("--batch must be between 1 and %d", queue.MaxBatch)
	}
	if needDatabase && (cfg.lease < minLease || cfg.lease > maxLease) {
		bad.add("--lease must be between %s and %s", minLease, maxLease)
	}
	return bad.err()
}

func (p *program) workerCommand() *cobra.Command {
	var cfg workerConfig
	c := &cobra.Command{
		Use:   "worker",
		Short: "Write queued orders to the database and requeue expired leases",
		Long: `Lease batches from the queue, write each in one transaction, and acknowledge it. Run any number of
workers; killing one loses nothing. After SIGTERM a worker finishes its batch and exits 0.`,
		Example: `  sluice worker --redis redis://10.0.0.3:6379/0 --database postgres://sluice@10.0.0.4/sluice`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.check(true); err != nil {
				return err
			}
			log := p.logger()
			tracer, err := p.openTracer(cmd.Context(), "sluice-worker", log)
			if err != nil {
				return err
			}
			defer tracer.Close()
			registry := newRegistry()
			counters := worker.NewCounters(registry)
			cfg.blocking = cfg.shards * cfg.concurrency
			s, err := openStores(
				cmd.Context(),
				log,
				cfg.storesConfig,
				nil,
				queue.Config{Lease: cfg.lease, OnReclaim: counters.Reclaimed},
			)
			if err != nil {
				return err
			}
			defer s.close()
			s.trace(tracer)
			// which Redis it is, before the first batch is taken; later looks will do
			_ = s.guard.Check(cmd.Context(), s.sql.Generations)
			g, ctx := errgroup.WithContext(cmd.Context())
			g.Go(func() error { return serveMetrics(ctx, log, cfg.metrics, registry) })
			g.Go(func() error { return s.guardWorker(ctx) })
			g.Go(func() error { return runWorker(ctx, log, s, cfg, counters) })
			log.Info("worker is up", "shards", cfg.shards, "concurrency", cfg.concurrency, "batch", cfg.batch)
			return g.Wait()
		},
	}
	p.workerFlags(c, &cfg)
	f := c.Flags()
	f.IntVar(&cfg.concurrency, "concurrency", 2, "batches of each shard written concurrently")
	f.IntVar(&cfg.batch, "batch", 500, "orders in a batch, at most")
	f.DurationVar(
		&cfg.lease,
		"lease",
		10*time.Second,
		"duration of a lease; a worker renews it while it writes, and an expired lease is requeued",
	)
	f.StringVar(&cfg.metrics, "metrics", "", metricsHelp)
	f.BoolVar(&cfg.noWatcher, "no-watcher", false, "do not run a watcher beside the worker")
	return c
}

func (p *program) watcherCommand() *cobra.Command {
	var cfg workerConfig
	c := &cobra.Command{
		Use:   "watcher",
		Short: "Requeue expired leases",
		Long: `Watch the leases of workers and requeue expired ones. Every worker does this too; any number of
watchers may run.`,
		Example: `  sluice watcher --redis redis://10.0.0.3:6379/0`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cfg.check(false); err != nil {
				return err
			}
			log := p.logger()
			registry := newRegistry()
			queues, closeRedis, err := openQueueAlone(
				cmd.Context(),
				cfg.redisURL,
				cfg.shards,
				cfg.queue,
				queue.Config{OnReclaim: worker.NewCounters(registry).Reclaimed},
				log,
			)
			if err != nil {
				return err
			}
			defer closeRedis()
			g, ctx := errgroup.WithContext(cmd.Context())
			g.Go(func() error { return serveMetrics(ctx, log, cfg.metrics, registry) })
			g.Go(func() error { return runWatchers(ctx, log, queues) })
			return g.Wait()
		},
	}
	p.str(c.Flags(), &cfg.redisURL, "redis", envRedis, "", redisHelp)
	p.shardsFlag(c.Flags(), &cfg.shards)
	p.driverFlag(c.Flags(), &cfg.queue)
	c.Flags().StringVar(&cfg.metrics, "metrics", "", metricsHelp)
	return c
}

// runWatchers runs one in each shard, until ctx ends.
func runWatchers(ctx context.Context, log *slog.Logger, queues []orderQueue) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, q := range queues {
		g.Go(func() error { return queue.NewWatcher(q, queue.WatcherConfig{Log: log}).Run(ctx) })
	}
	return g.Wait()
}

// runWorker runs one in each shard, so that no shard waits for another, until ctx ends, and then until what is leased
// is finished.
func runWorker(ctx context.Context, log *slog.Logger, s *stores, cfg workerConfig, counters *worker.Counters) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, q := range s.queues {
		config := worker.Config{
			Concurrency: cfg.concurrency,
			Batch:       cfg.batch,
			Metrics:     counters,
			Source:      s.source(),
			Log:         log,
			BatchID:     batchIDs(),
		}
		if s.tracer != nil {
			config.Tracer = telemetry.NewOrders(s.tracer, s.notes)
		}
		w := worker.New(q, s.sql.Orders, config)
		g.Go(func() error { return w.Run(ctx) })
	}
	if !cfg.noWatcher {
		g.Go(func() error { return runWatchers(ctx, log, s.queues) })
	}
	return g.Wait()
}

// batchIDs returns a function for ids that begin with the host and the process id, so that a lease in Redis names its
// owner.
func batchIDs() func() string {
	host, _ := os.Hostname()
	owner := fmt.Sprintf("%s-%d-", strings.Map(func(r rune) rune {
		if r == '{' || r == '}' || r <= ' ' || r > '~' { // braces are hash tags of keys
			return '_'
		}
		return r
	}, host), os.Getpid())
	return func() string { return owner + queue.NewBatchID() }
}
