package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/queue"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

// idleResult is what an empty queue costs, and how soon its worker has a message that is pushed into it.
type idleResult struct {
	Name     string  `json:"name"`
	Commands float64 `json:"commands_per_second"` // sent by clients
	All      float64 `json:"with_those_of_scripts_per_second"`
	CPU      float64 `json:"redis_cpu_percent"`
	Pushes   int     `json:"pushes"`
	P50      float64 `json:"push_to_take_p50_ms"`
	P99      float64 `json:"push_to_take_p99_ms"`
}

// idleFor is how long an idle queue is watched.
const idleFor = 5 * time.Second

// idle watches empty queues: ours with a worker and a watcher as they are, raw streams with two blocked consumers,
// and asynq as it is.
func idle(ctx context.Context, s *stage) ([]idleResult, error) {
	server := testenv.StartRedis(s)
	client, err := redisconn.Open(server.URL)
	if err != nil {
		return nil, err
	}
	s.Cleanup(func() { _ = client.Close() })
	var results []idleResult
	for _, c := range []struct {
		route
		pushes int // as many as take ten seconds
	}{
		{route{"list, worker and watcher, as they are", watched(client)}, 500},
		{route{"raw streams, 2 consumers, BLOCK 1000", streams(server.Client())}, 500},
		{route{"asynq, as it is", throughAsynq(server.Addr, 0)}, 20},
	} {
		r, err := idleOf(ctx, server.Client(), c.route, c.pushes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		fmt.Fprintf(
			os.Stderr,
			"%-9s %-40s %6.1f commands/s (%.1f with scripts'), push to take p50 %.2f ms, p99 %.2f ms\n",
			"idle",
			r.Name,
			r.Commands,
			r.All,
			r.P50,
			r.P99,
		)
		results = append(results, r)
	}
	return results, nil
}

// watched is ours with a watcher beside the worker.
func watched(
	client *redis.Client,
) func(context.Context, worker.Store) (func(context.Context, sale.Order) error, func(), error) {
	return func(ctx context.Context, store worker.Store) (func(context.Context, sale.Order) error, func(), error) {
		push, done, err := ours(client)(ctx, store)
		watching := make(chan struct{})
		go func() {
			defer close(watching)
			w := queue.NewWatcher(
				queue.NewList(client, 0, queue.Config{}),
				queue.WatcherConfig{Log: slog.New(slog.DiscardHandler)},
			)
			_ = w.Run(ctx)
		}()
		return push, func() { done(); <-watching }, err
	}
}

func idleOf(ctx context.Context, plain *redis.Client, way route, pushes int) (idleResult, error) {
	r := idleResult{Name: way.name, Pushes: pushes}
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
	orders := newOrders(newIDs(), 0, pushes+1)
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
	slices.Sort(waits)
	r.P50, r.P99 = quantile(waits, 0.5), quantile(waits, 0.99)
	return r, nil
}

// watch counts the commands that an idle system sends to Redis.
func (r *idleResult) watch(ctx context.Context, plain *redis.Client) error {
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
	all, scripts, err := commandCounts(ctx, plain)
	if err != nil {
		return err
	}
	all -= 2 // this function's own
	r.All, r.Commands, r.CPU = all/idleFor.Seconds(), (all-scripts)/idleFor.Seconds(), 100*(after-cpu)/idleFor.Seconds()
	return nil
}

var callStat = regexp.MustCompile(`(?m)^cmdstat_([a-z|_-]+):calls=(\d+)`)

// commandCounts reads how many commands Redis has carried out since its counts were reset, and how many of them
// scripts have given.
func commandCounts(ctx context.Context, plain *redis.Client) (all, scripts float64, err error) {
	info, err := plain.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, 0, err
	}
	for _, m := range callStat.FindAllStringSubmatch(info, -1) {
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return 0, 0, err
		}
		all += n
		if !fromClients[m[1]] {
			scripts += n
		}
	}
	return all, scripts, nil
}

// fromClients are the commands that the three queues' clients send while they are idle; all others come from scripts.
var fromClients = map[string]bool{
	"evalsha":          true,
	"blpop":            true,
	"xreadgroup":       true,
	"info":             true,
	"subscribe":        true,
	"publish":          true,
	"ping":             true,
	"config|resetstat": true,
}

// takenAt is a store that reports the time of each write.
type takenAt chan time.Time

// Write sends the current time.
func (t takenAt) Write(context.Context, []sale.Order) error {
	t <- time.Now()
	return nil
}

// after pushes one order and waits until it is taken.
func (t takenAt) after(
	ctx context.Context,
	push func(context.Context, sale.Order) error,
	o sale.Order,
) (time.Duration, error) {
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
