package assemble

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/redis/keyspace"
	"sluice/backend/store/storetest"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

// A worker and a watcher that start before the first backend wait until it has prepared Redis. That is no failure.
func TestWorkerAndWatcherBeforeTheFirstBackendLogNoWarning(t *testing.T) {
	var log testenv.Buffer
	cfg := StoresConfig{
		Redis: testenv.StartRedis(t).URL, Database: storetest.SQLite(t), Shards: 2, Driver: DriverList,
		Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	s, err := OpenStores(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stopGuard := testenv.Run(t, s.RunGuard)
	stopWatcher := testenv.Run(t, func(ctx context.Context) error { return RunWatcher(ctx, cfg) })
	counters := worker.NewCounters(prometheus.NewRegistry())
	stopWorker := testenv.Run(t, func(ctx context.Context) error {
		return s.RunWorker(ctx, WorkerConfig{Concurrency: 1, Batch: 10, Counters: counters})
	})
	testenv.Eventually(t, time.Minute, "the data in Redis is known to be unverified", func() bool {
		reason, _ := s.guards.Verified()
		return reason != ""
	})
	if err := newShardedBackend(t, cfg.Redis, cfg.Database, cfg.Shards).Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "the worker of each shard is registered", func() bool {
		keys := []string{keyspace.Shard(0).Consumers(), keyspace.Shard(1).Consumers()}
		return s.guards.Raw().Exists(t.Context(), keys...).Val() == 2
	})
	stopWorker()
	stopWatcher()
	stopGuard()
	if log.String() != "" {
		t.Errorf("logged %s", log.String())
	}
}
