package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admin"
	"sluice/backend/events"
	"sluice/backend/queue"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/telemetry"
)

// stores are the open connections of one process.
type stores struct {
	guard  *guard.Guard
	redis  *redis.Client // guarded
	pipe   *redisconn.Pipeline
	db     *store.DB
	sql    tables
	events *events.Store
	space  keyspace.Space
	queues []orderQueue // by shard
	stop   context.CancelFunc
	tracer *telemetry.Tracer  // nil: nothing is traced
	notes  *telemetry.Parents // with tracer
}

// tables are the queries of several packages as one value, for packages that use more than one of them.
type tables struct {
	*store.Sales
	*store.Orders
	*store.Payments
	*store.AdminLog
	*store.Generations
	*journal.Registry
}

func newTables(db *store.DB) tables {
	return tables{
		store.NewSales(db), store.NewOrders(db), store.NewPayments(db), store.NewAdminLog(db), store.NewGenerations(db),
		journal.NewRegistry(db),
	}
}

// openStores opens both stores. Redis may be away; the database is waited for, because its tables must be up to date
// before anything runs.
func openStores(
	ctx context.Context,
	log *slog.Logger,
	cfg storesConfig,
	identify guard.Identify,
	queueConfig queue.Config,
) (*stores, error) {
	s := &stores{space: keyspace.Space{Shards: cfg.shards}}
	var err error
	if s.guard, err = guard.Open(cfg.redisURL, s.space, identify, log, redisconn.Blocking(cfg.blocking)); err != nil {
		return nil, usage("--redis: %w", err)
	}
	s.redis = s.guard.Client()
	if s.pipe, err = redisconn.NewPipeline(s.redis); err != nil {
		return nil, err
	}
	waker := events.NewWaker(s.redis, s.space)
	if s.db, err = openDatabase(ctx, log, cfg.database, store.Config{OnChange: waker.Wake}); err != nil {
		_ = s.guard.Close()
		return nil, err
	}
	s.sql, s.events = newTables(s.db), events.NewStore(s.db)
	waking, stop := context.WithCancel(context.WithoutCancel(ctx)) // for as long as the stores are used
	s.stop = stop
	go func() { _ = waker.Run(waking) }()
	if err := awaitDatabase(ctx, log, func() error { return s.claimShards(ctx) }); err != nil { // it may go away again
		s.close()
		return nil, err
	}
	s.queues = openQueues(s.redis, s.space, cfg.queue, queueConfig)
	return s, nil
}

func openQueues(client *redis.Client, space keyspace.Space, driver string, cfg queue.Config) []orderQueue {
	queues := make([]orderQueue, len(space.All()))
	for i, shard := range space.All() {
		if driver == driverStream {
			queues[i] = queue.NewStream(client, shard, cfg)
		} else {
			queues[i] = queue.NewList(client, shard, cfg)
		}
	}
	return queues
}

// claimShards verifies that all processes agree on the number of shards: with the name of a sale it determines the
// shard.
func (s *stores) claimShards(ctx context.Context) error {
	want := len(s.space.All())
	have, err := s.sql.ClaimShards(ctx, want)
	if err == nil && have != want {
		return usage(
			"--shards is %d, but this database was created with %d shards: use the same number in every process (to change "+
				"it: docs/operations.md)",
			want,
			have,
		)
	}
	return err
}

// pushRaw queues an order in a Redis that is not verified yet.
func (s *stores) pushRaw(ctx context.Context, m keyspace.Message) error {
	return queue.NewList(s.guard.Raw(), s.space.ShardOf(m.SaleID), queue.Config{}).Push(ctx, m)
}

func (s *stores) adminShards() []admin.Shard {
	shards := make([]admin.Shard, len(s.queues))
	for i, q := range s.queues {
		shards[i] = q
	}
	return shards
}

// shards returns the queues of all shards.
func (s *stores) shards() queue.Shards {
	shards := make(queue.Shards, len(s.queues))
	for i, q := range s.queues {
		shards[i] = q
	}
	return shards
}

// openDatabase waits for the database, whatever it is away for.
func openDatabase(ctx context.Context, log *slog.Logger, url string, cfg store.Config) (db *store.DB, err error) {
	var badURL *store.URLError
	err = awaitDatabase(ctx, log, func() (err error) {
		db, err = store.Open(ctx, url, cfg)
		return err
	})
	if errors.As(err, &badURL) {
		return nil, usage("--database: %w", err)
	}
	return db, err
}

// awaitDatabase tries to do something until the database is there for it.
func awaitDatabase(ctx context.Context, log *slog.Logger, do func() error) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := do()
		if !errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
		log.Warn("waiting for the database", "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

func (s *stores) close() {
	s.stop()
	_ = s.guard.Close()
	_ = s.db.Close()
}

func (s *stores) pingRedis(ctx context.Context) error {
	if err := s.redis.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

// openQueueAlone opens the queue without a database. This process does not rebuild; Redis holds whether it was
// verified and its number of shards.
func openQueueAlone(
	ctx context.Context,
	redisURL string,
	shards int,
	driver string,
	cfg queue.Config,
	log *slog.Logger,
) ([]orderQueue, func(), error) {
	space := keyspace.Space{Shards: shards}
	g, err := guard.Open(redisURL, space, nil, log)
	if err != nil {
		return nil, nil, usage("--redis: %w", err)
	}
	var wrong *guard.ShardsError
	// without an answer the process waits, and the guard checks again
	if err := guard.CheckShards(ctx, g.Raw(), space); errors.As(err, &wrong) {
		_ = g.Close()
		return nil, nil, usage("%w", wrong)
	}
	ctx, stop := context.WithCancel(ctx)
	go func() { _ = g.Run(ctx, noSQL{}, nil) }()
	return openQueues(g.Client(), space, driver, cfg), func() { stop(); _ = g.Close() }, nil
}

// noSQL knows no generation.
type noSQL struct{}

func (noSQL) Generation(context.Context) (int64, error) { return 0, nil }
