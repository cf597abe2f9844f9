package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
)

const (
	queued    = 300_000 // messages in a full queue
	takers    = 4
	perTake   = 500 // the worker's default
	perStream = 100
)

// drain compares how fast workers without a store drain a queue: the leased list, and raw Redis streams with a
// consumer group that reads, acknowledges and deletes 100 messages at a time.
func drain(s *stage, _ settings) contest {
	const list500, list100, rawStreams = "list, batches of 500", "list, batches of 100", "raw streams, COUNT 100"
	d := newDrains(s, queued)
	return contest{
		name: "queue", unit: "messages", cost: func() float64 { return d.spent }, costOf: "Redis",
		contestants: []contestant{
			{list500, d.list(listSetting{takers, perTake})},
			{rawStreams, d.stream(streamSetting(takers))},
			{list100, d.list(listSetting{takers, perStream})},
		},
		ratios: []ratio{
			{"queue", list500, rawStreams, 2, 0},
			{"queue, batches of 100 on both sides", list100, rawStreams, 0, 0},
		},
	}
}

// listSetting is the number of takers, and the batch size of each.
type listSetting struct{ takers, batch int }

func (l listSetting) String() string {
	return fmt.Sprintf("list, %d takers, batches of %d", l.takers, l.batch)
}

// list empties a queue of one shard.
func (d *drains) list(c listSetting) measurement {
	return func(ctx context.Context) (float64, error) {
		shard := keyspace.Shard(0)
		if err := d.fill(ctx, func(p redis.Pipeliner, m string) { p.LPush(ctx, shard.Ready(), m) }); err != nil {
			return 0, err
		}
		q := queue.NewList(d.client, shard, queue.Config{})
		return d.empty(ctx, c.takers, func(ctx context.Context, handle func(n int)) error {
			consumer, err := q.Register(ctx, queue.NewConsumerName())
			if err != nil {
				return err
			}
			ack := ""
			for n := 1; ; n++ {
				b, lost, err := q.TakeAs(ctx, consumer.BatchID(n), c.batch, ack)
				if err != nil {
					return err
				}
				if lost {
					return errors.New("a lease was lost")
				}
				if len(b.Messages) == 0 {
					return nil
				}
				handle(len(b.Messages))
				ack = b.ID
			}
		})
	}
}

// streamSetting is the number of consumers.
type streamSetting int

func (c streamSetting) String() string {
	return fmt.Sprintf("raw streams, %d consumers", int(c))
}

// stream empties a stream of the same messages.
func (d *drains) stream(c streamSetting) measurement {
	return func(ctx context.Context) (float64, error) { return d.emptyStream(ctx, int(c)) }
}

func (d *drains) emptyStream(ctx context.Context, takers int) (float64, error) {
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
	return d.empty(ctx, takers, func(ctx context.Context, handle func(n int)) error {
		name := fmt.Sprint("consumer", consumers.Add(1))
		done := make([]string, 0, d.batch)
		for {
			got, err := d.plain.XReadGroup(ctx, &redis.XReadGroupArgs{
				Group: group, Consumer: name, Streams: []string{key, ">"}, Count: int64(d.batch), Block: -1,
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
			handle(len(done))
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
