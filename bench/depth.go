package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	redisscript "sluice/lua/redis"
)

const (
	shallow     = 10 // messages in the shallow queue, and in every batch of both
	deep        = 1_000_000
	turns       = 3000 // batches of each queue in a round
	depthTarget = 0.1  // difference between a shallow queue and a deep one
)

// depth compares taking a batch and acknowledging the one before it in a queue that holds 10 messages and in one that
// holds a million. Both queues are in one Redis and take turns, batch by batch.
func depth(ctx context.Context, s *stage, rounds int) error {
	d := newDrains(s, shallow)
	flat, err := newDeepQueue(ctx, d, 0)
	if err != nil {
		return err
	}
	full, err := newDeepQueue(ctx, d, 1)
	if err == nil {
		err = full.fill(ctx, deep)
	}
	if err != nil {
		return err
	}
	q := [2]*deepQueue{flat, full}
	var trips, inside [2][]float64 // by round, us: the median round trip, and the mean time in Redis by its own count
	for round := range rounds + 1 {
		trip, in, err := depthRound(ctx, d.client, q)
		if err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr,
			"%-9s round %d  take+ack of %d: %.1f us with %d in the queue, %.1f us with %s; in Redis %.2f us and %.2f us\n",
			"depth", round, shallow, trip[0], shallow, trip[1], number(deep), in[0], in[1])
		if round > 0 {
			for i := range q {
				trips[i], inside[i] = append(trips[i], trip[i]), append(inside[i], in[i])
			}
		}
	}
	verdict, ratios := "reached", divided(inside[1], inside[0])
	if m := median(ratios); m > 1+depthTarget || m < 1-depthTarget {
		verdict = "missed"
	}
	fmt.Printf("\ntake+ack of %d messages, with %d and with %s in the queue, us\n", shallow, shallow, number(deep))
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "round trip\t%s\t%s\tratio %s\t\n", middle(trips[0]), middle(trips[1]),
		middle(divided(trips[1], trips[0])))
	fmt.Fprintf(t, "in Redis\t%s\t%s\tratio %s\t%s (within %.0f%%)\n", middle(inside[0]), middle(inside[1]),
		middle(ratios), verdict, 100*depthTarget)
	return t.Flush()
}

// depthRound returns, for each queue, the median round trip of a take and the mean time that Redis reports for it.
// Redis counts commands by name only, so equal pieces of work on the shallow and the deep queue alternate, and the
// counts are read between them.
func depthRound(ctx context.Context, client redisconn.Client, q [2]*deepQueue) (trips, inside [2]float64, err error) {
	const pieces = 30
	var each [2][]float64
	for piece := range pieces {
		for k := range q {
			i := (k + piece) % 2
			if err := client.ConfigResetStat(ctx).Err(); err != nil {
				return trips, inside, err
			}
			for range turns / pieces {
				took, err := q[i].turn(ctx)
				if err != nil {
					return trips, inside, err
				}
				each[i] = append(each[i], took.Seconds()*1e6)
			}
			_, micros, err := commandStats(ctx, client)
			if err != nil {
				return trips, inside, err
			}
			inside[i] += micros["evalsha"] / pieces // messages are pushed without a script
		}
	}
	for i := range each {
		trips[i] = median(each[i])
	}
	return trips, inside, nil
}

type deepQueue struct {
	*drains
	shard keyspace.Shard
	list  *queue.List
	ack   string

	consumer queue.Consumer
	batches  int
}

// newDeepQueue opens a queue without messages. It has its wake token: otherwise each push would wake one of two queues
// and never the other.
func newDeepQueue(ctx context.Context, d *drains, shard keyspace.Shard) (*deepQueue, error) {
	q := &deepQueue{drains: d, shard: shard, list: queue.NewList(d.client, shard, queue.Config{})}
	var err error
	q.consumer, err = q.list.Register(ctx, queue.NewConsumerName())
	return q, errors.Join(err, redisscript.Load("take").Load(ctx, d.client).Err(),
		d.client.LPush(ctx, shard.Wake(), "1").Err())
}

func (q *deepQueue) fill(ctx context.Context, n int) error {
	args := make([]any, 1000)
	for begin := 0; begin < n; begin += len(args) {
		for i := range args {
			args[i] = q.messages[i%len(q.messages)]
		}
		if err := q.client.LPush(ctx, q.shard.Ready(), args...).Err(); err != nil {
			return err
		}
	}
	return nil
}

// turn pushes a batch, so that the queue keeps its depth, and times a take of one.
func (q *deepQueue) turn(ctx context.Context) (time.Duration, error) {
	args := make([]any, len(q.messages))
	for i, m := range q.messages {
		args[i] = m
	}
	if err := q.client.LPush(ctx, q.shard.Ready(), args...).Err(); err != nil {
		return 0, err
	}
	q.batches++
	begin := time.Now()
	b, lost, err := q.list.TakeAs(ctx, q.consumer.BatchID(q.batches), shallow, q.ack)
	took := time.Since(begin)
	if err != nil || lost || len(b.Messages) != shallow {
		return 0, fmt.Errorf("took %d messages, lost %v: %w", len(b.Messages), lost, err)
	}
	q.ack = b.ID
	return took, nil
}
