package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/keyspace"
	"sluice/backend/queue"
	"sluice/backend/redisconn"
	"sluice/backend/sale"
	"sluice/internal/testenv"
)

const (
	queued    = 300_000 // messages in a full queue
	takers    = 4
	perTake   = 500 // the worker's default
	perStream = 100
)

// drain compares how fast the queue is emptied by workers that do nothing with the messages: the leased list, and raw Redis streams with a consumer
// group, whose consumers read 100 messages, acknowledge and delete them.
func drain(ctx context.Context, s *stage, cfg settings) ([]result, error) {
	server := testenv.StartRedis(s)
	client, err := redisconn.Open(server.URL)
	if err != nil {
		return nil, err
	}
	s.Cleanup(func() { _ = client.Close() })
	messages := make([]string, queued)
	for i, o := range newOrders(newIDs(), 0, queued) {
		messages[i] = keyspace.EncodeMessage(o)
	}
	d := &drains{client: client, plain: server.Client(), messages: messages}
	c := contest{
		name: "queue", unit: "messages",
		contestants: []contestant{
			{"list, batches of 500", d.list(perTake)},
			{"raw streams, COUNT 100", d.stream},
			{"list, batches of 100", d.list(perStream)},
		},
		ratios: []ratio{
			{"queue", "list, batches of 500", "raw streams, COUNT 100", 2, 0},
			{"queue, batches of 100 on both sides", "list, batches of 100", "raw streams, COUNT 100", 0, 0},
		},
	}
	return c.hold(ctx, cfg.rounds)
}

type drains struct {
	client   *redis.Client // as sluice opens it
	plain    *redis.Client // as the library's defaults have it
	messages []string
}

// list empties a queue of one lane.
func (d *drains) list(batch int) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		lane := keyspace.Lane(0)
		if err := d.fill(ctx, func(p redis.Pipeliner, m string) { p.LPush(ctx, lane.Ready(), m) }); err != nil {
			return 0, err
		}
		q := queue.NewList(d.client, lane, queue.Config{})
		return d.empty(ctx, func(ctx context.Context, handle func([]sale.Order)) error {
			for ack := ""; ; {
				b, lost, err := q.Take(ctx, batch, ack)
				if err != nil {
					return err
				}
				if lost {
					return errors.New("a lease was lost")
				}
				if len(b.Messages) == 0 {
					return nil
				}
				handle(b.Messages)
				ack = b.ID
			}
		})
	}
}

// stream empties a stream of the same messages.
func (d *drains) stream(ctx context.Context) (float64, error) {
	const key, group = "stream", "workers"
	if err := d.fill(ctx, func(p redis.Pipeliner, m string) {
		p.XAdd(ctx, &redis.XAddArgs{Stream: key, Values: []any{"m", m}})
	}); err != nil {
		return 0, err
	}
	if err := d.plain.XGroupCreate(ctx, key, group, "0").Err(); err != nil {
		return 0, err
	}
	var consumers atomic.Int64
	return d.empty(ctx, func(ctx context.Context, handle func([]sale.Order)) error {
		name := fmt.Sprint("consumer", consumers.Add(1))
		done := make([]string, 0, perStream)
		none := make([]sale.Order, perStream)
		for {
			got, err := d.plain.XReadGroup(ctx, &redis.XReadGroupArgs{
				Group: group, Consumer: name, Streams: []string{key, ">"}, Count: perStream, Block: -1,
			}).Result()
			if errors.Is(err, redis.Nil) {
				return nil
			}
			if err != nil {
				return err
			}
			done = done[:0]
			for _, m := range got[0].Messages {
				done = append(done, m.ID)
			}
			handle(none[:len(done)])
			if _, err := d.plain.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.XAck(ctx, key, group, done...)
				p.XDel(ctx, key, done...)
				return nil
			}); err != nil {
				return err
			}
		}
	})
}

func (d *drains) fill(ctx context.Context, push func(redis.Pipeliner, string)) error {
	if err := d.client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	for begin := 0; begin < len(d.messages); begin += 1000 {
		if _, err := d.plain.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, m := range d.messages[begin:min(begin+1000, len(d.messages))] {
				push(p, m)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// empty runs the takers until nothing is left, and checks that every message was handled once.
func (d *drains) empty(ctx context.Context, take func(context.Context, func([]sale.Order)) error) (float64, error) {
	var handled atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, takers)
	begin := time.Now()
	for i := range takers {
		all.Go(func() { errs[i] = take(ctx, func(m []sale.Order) { handled.Add(int64(len(m))) }) })
	}
	all.Wait()
	took := time.Since(begin)
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	if n := handled.Load(); n != int64(len(d.messages)) {
		return 0, fmt.Errorf("%d messages handled, of %d", n, len(d.messages))
	}
	return float64(len(d.messages)) / took.Seconds(), nil
}
