package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/worker"
)

// streams is a consumer group with as many consumers as our worker has: they read count messages, write them,
// acknowledge and delete them.
func streams(client redisconn.Client, count int) starter {
	const key, group, consumers = "orders", "workers", 2
	return func(ctx context.Context, store worker.Store) (pusher, func(), error) {
		if err := client.XGroupCreateMkStream(ctx, key, group, "0").Err(); err != nil {
			return nil, nil, err
		}
		var all sync.WaitGroup
		for c := range consumers {
			all.Go(func() {
				for ctx.Err() == nil {
					got, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{
						Group: group, Consumer: fmt.Sprint("consumer", c), Streams: []string{key, ">"}, Count: int64(count),
						Block: time.Second,
					}).Result()
					if err != nil || write(ctx, store, got[0].Messages) != nil {
						continue // no message, or ctx has ended
					}
					done := make([]string, len(got[0].Messages))
					for i, m := range got[0].Messages {
						done[i] = m.ID
					}
					_, _ = client.Pipelined(ctx, func(p redis.Pipeliner) error {
						p.XAck(ctx, key, group, done...)
						p.XDel(ctx, key, done...)
						return nil
					})
				}
			})
		}
		push := func(ctx context.Context, o sale.Order) error {
			return client.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []any{"m", keyspace.EncodeMessage(o)}}).Err()
		}
		return push, all.Wait, nil
	}
}

func write(ctx context.Context, store worker.Store, messages []redis.XMessage) error {
	orders := make([]sale.Order, 0, len(messages))
	for _, m := range messages {
		text, _ := m.Values["m"].(string)
		o, err := keyspace.DecodeMessage(text)
		if err != nil {
			return err
		}
		orders = append(orders, o)
	}
	return store.Write(ctx, orders)
}

// throughAsynq polls for tasks at this interval; 0 is asynq's default, a second.
func throughAsynq(addr string, check time.Duration) starter {
	return func(_ context.Context, store worker.Store) (pusher, func(), error) {
		server := newAsynq(addr, asynqMost, check)
		client := asynq.NewClient(asynq.RedisClientOpt{Addr: addr})
		err := server.Start(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			o, err := keyspace.DecodeMessage(string(t.Payload()))
			if err != nil {
				return err
			}
			return store.Write(ctx, []sale.Order{o})
		}))
		if err != nil {
			return nil, nil, errors.Join(err, client.Close())
		}
		push := func(ctx context.Context, o sale.Order) error {
			_, err := client.EnqueueContext(ctx, asynq.NewTask("order", []byte(keyspace.EncodeMessage(o))))
			return err
		}
		return push, func() { server.Shutdown(); _ = client.Close() }, nil
	}
}
