package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"sluice/backend/queue"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

// idleResult is the cost of an empty queue, and the time until its worker has a message that is pushed.
type idleResult struct {
	commands float64 // per second, sent by clients
	all      float64 // with those of scripts
	cpu      float64 // percent of a core, of Redis
	p50, p99 float64 // ms, from a push to its take
}

// idleFor is how long an idle queue is watched.
const idleFor = 5 * time.Second

// idle measures empty queues: ours with a worker and a watcher, raw streams with two blocked consumers, and asynq, each
// with its default settings.
func idle(ctx context.Context, s *stage) error {
	server := testenv.StartRedis(s)
	plain := server.Client()
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "an idle queue\tcommands/s\twith those of scripts\tRedis CPU\tpush to take p50\tp99\tpushes\t")
	for _, c := range []struct {
		route

		pushes int // as many as take ten seconds
	}{
		{route{"list, worker and watcher, as they are", watched(openRedis(s, server.URL))}, 500},
		{route{"raw streams, 2 consumers, BLOCK 1000", streams(plain, perStream)}, 500},
		{route{"asynq, as it is", throughAsynq(server.Addr, 0)}, 20},
	} {
		r, err := idleOf(ctx, plain, c.route, c.pushes)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.2f%%\t%.2f ms\t%.2f ms\t%d\t\n",
			c.name, r.commands, r.all, r.cpu, r.p50, r.p99, c.pushes)
	}
	return t.Flush()
}

// watched is our queue with a watcher beside the worker.
func watched(client redisconn.Client) starter {
	return func(ctx context.Context, store worker.Store) (pusher, func(), error) {
		push, done, err := ours(client, perTake)(ctx, store)
		watching := make(chan struct{})
		go func() {
			defer close(watching)
			w := queue.Watcher{Queue: queue.NewList(client, 0, queue.Config{}), Log: slog.New(slog.DiscardHandler)}
			_ = w.Run(ctx)
		}()
		return push, func() { done(); <-watching }, err
	}
}

func idleOf(ctx context.Context, plain redisconn.Client, way route, pushes int) (r idleResult, err error) {
	if err := plain.FlushAll(ctx).Err(); err != nil {
		return r, err
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	taken := make(takenAt, 1)
	push, done, err := way.start(serving, taken)
	if err != nil {
		return r, err
	}
	defer done()
	defer stop()
	orders := new(ids).orders(pushes + 1)
	if _, err := taken.after(ctx, push, orders[pushes]); err != nil { // connections are open, scripts are loaded
		return r, err
	}
	if err := r.watch(ctx, plain); err != nil {
		return r, err
	}
	var waits []float64
	for _, o := range orders[:pushes] {
		time.Sleep(5*time.Millisecond + rand.N(20*time.Millisecond))
		took, err := taken.after(ctx, push, o)
		if err != nil {
			return r, err
		}
		waits = append(waits, took.Seconds()*1e3)
	}
	r.p50, r.p99 = percentiles(waits)
	return r, nil
}

// watch counts the commands that an idle system sends to Redis.
func (r *idleResult) watch(ctx context.Context, plain redisconn.Client) error {
	if err := plain.ConfigResetStat(ctx).Err(); err != nil {
		return err
	}
	cpu, err := redisCPU(ctx, plain)
	if err != nil {
		return err
	}
	time.Sleep(idleFor)
	after, err := redisCPU(ctx, plain)
	if err != nil {
		return err
	}
	calls, _, err := commandStats(ctx, plain)
	if err != nil {
		return err
	}
	all, sent := -2.0, -2.0 // without the two of this function
	for command, n := range calls {
		all += n
		if slices.Contains(fromClients, command) {
			sent += n
		}
	}
	r.all, r.commands, r.cpu = all/idleFor.Seconds(), sent/idleFor.Seconds(), 100*(after-cpu)/idleFor.Seconds()
	return nil
}

// fromClients are the commands that the three queues' clients send while they are idle; all others come from scripts.
var fromClients = []string{
	"evalsha", "blpop", "xreadgroup", "info", "subscribe", "publish", "ping", "config|resetstat",
}

// takenAt is a store that reports the time of each write.
type takenAt chan time.Time

// Write sends the current time.
func (t takenAt) Write(context.Context, []sale.Order) error {
	t <- time.Now()
	return nil
}

// after pushes one order and waits until it is taken.
func (t takenAt) after(ctx context.Context, push pusher, o sale.Order) (time.Duration, error) {
	begin := time.Now()
	if err := push(ctx, o); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	select {
	case at := <-t:
		return at.Sub(begin), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("a message was not taken: %w", ctx.Err())
	}
}
