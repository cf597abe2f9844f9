package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/epoch"
	"sluice/backend/keyspace"
	"sluice/backend/order"
	"sluice/backend/queue"
	"sluice/backend/redisconn"
	"sluice/backend/sale"
)

// stores are the open connections of one process.
type stores struct {
	guard  *epoch.Guard
	redis  *redis.Client // guarded
	pipe   *redisconn.Pipeline
	orders *order.Store
	space  keyspace.Space
	queue  *queue.List
}

// openStores opens both stores. Redis may be away; the database is waited for, because its tables must be up to date before anything runs.
func openStores(ctx context.Context, log *slog.Logger, redisURL, databaseURL string, identify epoch.Identify, queueConfig queue.Config) (*stores, error) {
	s := &stores{}
	var err error
	if s.guard, err = epoch.Open(redisURL, s.space, identify, log); err != nil {
		return nil, usage("--redis: %w", err)
	}
	s.redis = s.guard.Client()
	if s.pipe, err = redisconn.NewPipeline(s.redis); err != nil {
		return nil, err
	}
	if s.orders, err = openDatabase(ctx, log, databaseURL); err != nil {
		_ = s.guard.Close()
		return nil, err
	}
	s.queue = queue.NewList(s.redis, keyspace.Lane(0), queueConfig)
	return s, nil
}

func openDatabase(ctx context.Context, log *slog.Logger, url string) (*order.Store, error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		store, err := order.Open(ctx, url)
		var badURL *order.URLError
		switch {
		case err == nil:
			return store, nil
		case errors.As(err, &badURL):
			return nil, usage("--database: %w", err)
		case !errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil:
			return nil, err
		}
		log.Warn("waiting for the database", "err", err)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

func (s *stores) close() {
	_ = s.guard.Close()
	_ = s.orders.Close()
}

func (s *stores) pingRedis(ctx context.Context) error {
	if err := s.redis.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

// openQueue opens the queue alone. Nobody rebuilds here, and without SQL Redis itself says whether it was verified.
func openQueue(ctx context.Context, redisURL string, log *slog.Logger) (*queue.List, func(), error) {
	guard, err := epoch.Open(redisURL, keyspace.Space{}, nil, log)
	if err != nil {
		return nil, nil, usage("--redis: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	go func() { _ = guard.Run(ctx, noSQL{}, nil) }()
	return queue.NewList(guard.Client(), keyspace.Lane(0), queue.Config{}), func() { stop(); _ = guard.Close() }, nil
}

// noSQL knows no generation.
type noSQL struct{}

func (noSQL) Generation(context.Context) (int64, error) { return 0, nil }
