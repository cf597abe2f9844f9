package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/adjust/rmq/v5"
	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"
)

// Messages in a full queue of a peer: enough for a second or more.
const (
	queuedRMQ   = 20_000
	queuedAsynq = 8_000
)

// drainLimit is the time after which a run that has not finished fails.
const drainLimit = 5 * time.Minute

// rmqSetting is the number of connections, and the number of messages that each of them prefetches for its four batch
// consumers.
type rmqSetting struct {
	connections int
	prefetch    int64
}

func (r rmqSetting) String() string {
	return fmt.Sprintf("rmq, %d connections, prefetch %d", r.connections, r.prefetch)
}

var rmqSettings = []rmqSetting{{1, 2000}, {4, 2000}, {8, 200}, {16, 200}, {16, 2000}, {32, 200}}

// rmq empties a queue of adjust/rmq.
func (d *drains) rmq(c rmqSetting, n int) measurement {
	return func(ctx context.Context) (float64, error) {
		if err := d.client.FlushAll(ctx).Err(); err != nil {
			return 0, err
		}
		var queues []rmq.Queue
		for range c.connections {
			conn, err := rmq.OpenConnectionWithRedisClient("bench", d.plain, nil)
			if err != nil {
				return 0, err
			}
			q, err := conn.OpenQueue("orders")
			if err != nil {
				return 0, err
			}
			queues = append(queues, q)
		}
		for begin := 0; begin < n; begin += 1000 {
			if err := queues[0].Publish(d.messages[begin:min(begin+1000, n)]...); err != nil {
				return 0, err
			}
		}
		defer func() {
			for _, q := range queues {
				<-q.StopConsuming()
			}
		}()
		return d.measure(ctx, n, func() error {
			t := newTally(n)
			for _, q := range queues {
				if err := q.StartConsuming(c.prefetch, time.Millisecond); err != nil {
					return err
				}
				for range takers {
					if _, err := q.AddBatchConsumerFunc("bench", int64(d.batch), time.Millisecond, func(batch rmq.Deliveries) {
						if failed := batch.Ack(); len(failed) > 0 {
							t.fail(fmt.Errorf("ack: %v", failed))
							return
						}
						t.add(len(batch))
					}); err != nil {
						return err
					}
				}
			}
			return t.wait(ctx)
		})
	}
}

// asynqSetting is the number of servers, and of tasks that each of them runs concurrently.
type asynqSetting struct{ servers, concurrency int }

func (a asynqSetting) String() string {
	return fmt.Sprintf("asynq, %d servers, concurrency %d", a.servers, a.concurrency)
}

var asynqSettings = []asynqSetting{{1, 10}, {1, 100}, {4, 10}, {8, 10}, {16, 10}, {32, 10}}

// newAsynq returns a server that polls again after this interval when it has found no task.
func newAsynq(addr string, concurrency int, check time.Duration) *asynq.Server {
	return asynq.NewServer(asynq.RedisClientOpt{Addr: addr, PoolSize: concurrency + 10},
		asynq.Config{Concurrency: concurrency, TaskCheckInterval: check, LogLevel: asynq.FatalLevel})
}

// asynq empties a queue of hibiken/asynq.
func (d *drains) asynq(c asynqSetting, n int) measurement {
	return func(ctx context.Context) (float64, error) {
		if err := d.client.FlushAll(ctx).Err(); err != nil {
			return 0, err
		}
		if err := enqueue(d.addr, d.messages[:n]); err != nil {
			return 0, err
		}
		t := newTally(n)
		handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { t.add(1); return nil })
		var servers []*asynq.Server
		for range c.servers {
			servers = append(servers, newAsynq(d.addr, c.concurrency, time.Millisecond))
		}
		defer func() {
			var all sync.WaitGroup
			for _, server := range servers {
				all.Go(server.Shutdown)
			}
			all.Wait()
		}()
		return d.measure(ctx, n, func() error {
			for _, server := range servers {
				if err := server.Start(handler); err != nil {
					return err
				}
			}
			return t.wait(ctx)
		})
	}
}

// enqueue pushes all messages to asynq, eight at a time.
func enqueue(addr string, messages []string) error {
	const hands = 8
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: addr})
	defer client.Close()
	var all errgroup.Group
	for h := range hands {
		all.Go(func() (err error) {
			for i := h; i < len(messages) && err == nil; i += hands {
				_, err = client.Enqueue(asynq.NewTask("order", []byte(messages[i])))
			}
			return err
		})
	}
	return all.Wait()
}

// fastest runs every setting once and names the one that drains most.
func fastest[S fmt.Stringer](ctx context.Context, settings []S, run func(S) measurement) (best S, err error) {
	most := 0.0
	for _, c := range settings {
		perSecond, err := run(c)(ctx)
		if err != nil {
			return best, fmt.Errorf("%s: %w", c, err)
		}
		fmt.Fprintf(os.Stderr, "%-9s %-8s %-36s %12s messages/s\n", "settings", "", c, number(perSecond))
		if perSecond > most {
			most, best = perSecond, c
		}
	}
	return best, nil
}

// tally counts handled messages until none is left. It is safe for concurrent use.
type tally struct {
	left atomic.Int64
	done chan struct{}
	err  chan error
}

func newTally(n int) *tally {
	t := &tally{done: make(chan struct{}), err: make(chan error, 1)}
	t.left.Store(int64(n))
	return t
}

func (t *tally) add(n int) {
	if t.left.Add(-int64(n)) == 0 {
		close(t.done)
	}
}

func (t *tally) fail(err error) {
	select {
	case t.err <- err:
	default:
	}
}

// wait returns when everything is handled, or the first error.
func (t *tally) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	select {
	case <-t.done:
		return nil
	case err := <-t.err:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%d messages are left: %w", t.left.Load(), ctx.Err())
	}
}
