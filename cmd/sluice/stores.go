package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/keyspace"
	"sluice/backend/order"
	"sluice/backend/queue"
	"sluice/backend/redisconn"
	"sluice/backend/sale"
)

// stores are the open connections of one process.
type stores struct {
	redis  *redis.Client
	pipe   *redisconn.Pipeline
	orders *order.Store
	space  keyspace.Space
	queue  *queue.List
}

// openStores opens both stores. Redis may be away; the database is waited for, because its tables must be up to date before anything runs.
func openStores(ctx context.Context, log *slog.Logger, redisURL, databaseURL string, queueConfig queue.Config) (*stores, error) {
	s := &stores{}
	var err error
	if s.redis, err = redisconn.Open(redisURL); err != nil {
		return nil, usage("--redis: %w", err)
	}
	if s.pipe, err = redisconn.NewPipeline(s.redis); err != nil {
		return nil, err
	}
	if s.orders, err = openDatabase(ctx, log, databaseURL); err != nil {
		s.redis.Close()
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
	_ = s.redis.Close()
	_ = s.orders.Close()
}

func (s *stores) pingRedis(ctx context.Context) error {
	if err := s.redis.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

// openQueue opens the queue alone.
func openQueue(redisURL string) (*queue.List, func(), error) {
	client, err := redisconn.Open(redisURL)
	if err != nil {
		return nil, nil, usage("--redis: %w", err)
	}
	return queue.NewList(client, keyspace.Lane(0), queue.Config{}), func() { _ = client.Close() }, nil
}
