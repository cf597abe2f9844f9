package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"sluice/backend/queue"
	"sluice/backend/worker"
	"sluice/internal/assemble"
)

// The bounds of --lease. A lease of less than a second could expire during one call to Redis. A lease of more than an
// hour would hold the orders of a crashed worker for that long.
const (
	minLease = time.Second
	maxLease = time.Hour
)

func (p *program) workerCommand() *cobra.Command {
	var stores assemble.StoresConfig
	var cfg assemble.WorkerConfig
	var metrics string
	c := &cobra.Command{
		Use:   "worker",
		Short: "Write queued orders to the database and requeue expired leases",
		Long: `Lease batches from the queue, write each in one transaction, and acknowledge it. Run any number of
workers; killing one loses nothing. After SIGTERM a worker finishes its batch and exits 0.`,
		Example:     `  sluice worker --redis redis://10.0.0.3:6379/0 --database postgres://sluice@10.0.0.4/sluice`,
		Annotations: map[string]string{runsUntilSignal: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			registry := newRegistry()
			cfg.Counters = worker.NewCounters(registry)
			stores.Queue.OnReclaim = cfg.Counters.Reclaimed
			stores.Blocking = cfg.Concurrency // of each shard
			s, closeStores, err := p.openStores(cmd.Context(), "sluice-worker", stores, registry)
			if err != nil {
				return err
			}
			defer closeStores()
			p.collectLess()
			return p.runParts(cmd.Context(), metrics, registry, s.RunGuard, func(ctx context.Context) error {
				p.logger().Info("worker is up", "shards", stores.Shards, "concurrency", cfg.Concurrency, "batch", cfg.Batch)
				return s.RunWorker(ctx, cfg)
			})
		},
	}
	f := p.flags(c)
	f.stores(&stores)
	f.queue(c, &stores.Driver)
	f.number(&cfg.Concurrency, "concurrency", "", 2, 1, 64, "batches of each shard written concurrently")
	f.number(&cfg.Batch, "batch", "", 500, 1, queue.MaxBatch, "maximum orders in a batch")
	f.duration(&stores.Queue.Lease, "lease", "", queue.DefaultLease, minLease, maxLease,
		"duration of a lease; a worker renews it while it writes, and an expired lease is requeued")
	f.metrics(&metrics)
	f.BoolVar(&cfg.NoWatcher, "no-watcher", false, "do not run a watcher beside the worker")
	f.check(func(bad *problems) {
		if stores.Shards*cfg.Concurrency > 256 {
			bad.add("--concurrency %d in each of %d shards is more than 256 in all", cfg.Concurrency, stores.Shards)
		}
	})
	return c
}

func (p *program) watcherCommand() *cobra.Command {
	var cfg assemble.StoresConfig
	var metrics string
	c := &cobra.Command{
		Use:   "watcher",
		Short: "Requeue expired leases",
		Long: `Watch the leases of workers and requeue expired ones. Every worker does this too; any number of
watchers may run.`,
		Example:     `  sluice watcher --redis redis://10.0.0.3:6379/0`,
		Annotations: map[string]string{runsUntilSignal: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			registry := newRegistry()
			cfg.Log, cfg.Queue.OnReclaim = p.logger(), worker.NewCounters(registry).Reclaimed
			return p.runParts(cmd.Context(), metrics, registry,
				func(ctx context.Context) error { return assemble.RunWatcher(ctx, cfg) })
		},
	}
	f := p.flags(c)
	f.redis(&cfg.Redis)
	f.shards(&cfg.Shards)
	f.queue(c, &cfg.Driver)
	f.metrics(&metrics)
	return c
}
