package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/api"
	"sluice/backend/desk"
	"sluice/backend/epoch"
	"sluice/backend/event"
	"sluice/backend/keyspace"
	"sluice/backend/order"
	"sluice/backend/queue"
	"sluice/backend/redisconn"
	"sluice/backend/sale"
	"sluice/backend/trace"
)

// stores are the open connections of one process.
type stores struct {
	guard  *epoch.Guard
	redis  *redis.Client // guarded
	pipe   *redisconn.Pipeline
	orders *order.Store
	space  keyspace.Space
	queues []orderQueue // by lane
	stop   context.CancelFunc
	tracer *trace.Tracer // nil: nothing is traced
	notes  *trace.Notes  // with tracer
}

// openStores opens both stores. Redis may be away; the database is waited for, because its tables must be up to date before anything runs.
func openStores(ctx context.Context, log *slog.Logger, cfg storesConfig, identify epoch.Identify, queueConfig queue.Config) (*stores, error) {
	s := &stores{space: keyspace.Space{Lanes: cfg.lanes}}
	var err error
	if s.guard, err = epoch.Open(cfg.redisURL, s.space, identify, log, redisconn.Blocking(cfg.blocking)); err != nil {
		return nil, usage("--redis: %w", err)
	}
	s.redis = s.guard.Client()
	if s.pipe, err = redisconn.NewPipeline(s.redis); err != nil {
		return nil, err
	}
	waker := event.NewWaker(s.redis, s.space)
	if s.orders, err = openDatabase(ctx, log, cfg.database, order.OnChange(waker.Wake)); err != nil {
		_ = s.guard.Close()
		return nil, err
	}
	waking, stop := context.WithCancel(context.WithoutCancel(ctx)) // for as long as the stores are used
	s.stop = stop
	go func() { _ = waker.Run(waking) }()
	if err := awaitDatabase(ctx, log, func() error { return s.claimLanes(ctx) }); err != nil { // it may go away again
		s.close()
		return nil, err
	}
	s.queues = openQueues(s.redis, s.space, cfg.queue, queueConfig)
	return s, nil
}

func openQueues(client *redis.Client, space keyspace.Space, driver string, cfg queue.Config) []orderQueue {
	queues := make([]orderQueue, len(space.All()))
	for i, lane := range space.All() {
		if driver == driverStream {
			queues[i] = queue.NewStream(client, lane, cfg)
		} else {
			queues[i] = queue.NewList(client, lane, cfg)
		}
	}
	return queues
}

// claimLanes makes sure that all processes agree: a sale is looked for in the lane that its name and the number of lanes say.
func (s *stores) claimLanes(ctx context.Context) error {
	want := len(s.space.All())
	have, err := s.orders.ClaimLanes(ctx, want)
	if err == nil && have != want {
		return usage("--lanes is %d, and the orders of this database are kept in %d lanes: every process must say the same (to change it: docs/operations.md)", want, have)
	}
	return err
}

// pushRaw queues an order in a Redis that is not verified yet.
func (s *stores) pushRaw(ctx context.Context, m keyspace.Message) error {
	return queue.NewList(s.guard.Raw(), s.space.LaneOf(m.SaleID), queue.Config{}).Push(ctx, m)
}

func (s *stores) deskLanes() []desk.Lane {
	lanes := make([]desk.Lane, len(s.queues))
	for i, q := range s.queues {
		lanes[i] = q
	}
	return lanes
}

// lanes are the queues as the API wants them.
func (s *stores) lanes() api.Lanes {
	lanes := make(api.Lanes, len(s.queues))
	for i, q := range s.queues {
		lanes[i] = q
	}
	return lanes
}

// openDatabase waits for the database, whatever it is away for.
func openDatabase(ctx context.Context, log *slog.Logger, url string, options ...order.Option) (store *order.Store, err error) {
	var badURL *order.URLError
	err = awaitDatabase(ctx, log, func() (err error) {
		store, err = order.Open(ctx, url, options...)
		return err
	})
	if errors.As(err, &badURL) {
		return nil, usage("--database: %w", err)
	}
	return store, err
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
	_ = s.orders.Close()
}

func (s *stores) pingRedis(ctx context.Context) error {
	if err := s.redis.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

// pauseRedis makes Redis answer nobody for a while, as a rehearsal may ask for. CLIENT PAUSE ends by itself, and goes on to replicate and to answer other nodes, so nothing fails
// over; DEBUG SLEEP would stop all of it.
func (s *stores) pauseRedis(ctx context.Context, span time.Duration) error {
	if err := s.guard.Raw().ClientPause(ctx, span).Err(); err != nil {
		return fmt.Errorf("pause Redis: %w: %w", sale.ErrUnavailable, err)
	}
	return nil
}

// openQueueAlone opens the queue without a database. Nobody rebuilds here, and Redis itself says whether it was verified and how many lanes it has.
func openQueueAlone(ctx context.Context, redisURL string, lanes int, driver string, cfg queue.Config, log *slog.Logger) ([]orderQueue, func(), error) {
	space := keyspace.Space{Lanes: lanes}
	guard, err := epoch.Open(redisURL, space, nil, log)
	if err != nil {
		return nil, nil, usage("--redis: %w", err)
	}
	var wrong *epoch.LanesError
	if err := epoch.CheckLanes(ctx, guard.Raw(), space); errors.As(err, &wrong) { // one that does not answer is waited for, and not trusted before it says the same
		_ = guard.Close()
		return nil, nil, usage("%w", wrong)
	}
	ctx, stop := context.WithCancel(ctx)
	go func() { _ = guard.Run(ctx, noSQL{}, nil) }()
	return openQueues(guard.Client(), space, driver, cfg), func() { stop(); _ = guard.Close() }, nil
}

// noSQL knows no generation.
type noSQL struct{}

func (noSQL) Generation(context.Context) (int64, error) { return 0, nil }
