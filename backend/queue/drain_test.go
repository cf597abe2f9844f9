package queue_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

const drainWorkers = 4

// BenchmarkDrain compares how fast four workers that do nothing empty this queue and a raw Redis stream (XREADGROUP,
// then XACK and XDEL in one pipeline). Both carry the same 200 bytes. Only the ratio within one run is meaningful.
func BenchmarkDrain(b *testing.B) {
	client := testenv.StartRedis(b).Client()
	for _, bench := range []struct {
		name  string
		fill  func(redisconn.Client, int) error
		drain func(redisconn.Client, int) error
	}{
		{"worker500", fillList, drainWorker},
		{"list500", fillList, drainList(500)},
		{"list100", fillList, drainList(100)},
		{"stream100", fillStream, drainStream},
	} {
		b.Run(bench.name, func(b *testing.B) {
			client.FlushAll(b.Context())
			if err := bench.fill(client, b.N); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			start := time.Now()
			if err := bench.drain(client, b.N); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "messages/s")
		})
	}
}

func drainOrder(n int) queue.Message {
	return queue.Message{
		ID:     sale.NewOrderID(sale.Epoch, uint32(n)),
		SaleID: "drop",
		Slot:   1,
		Serial: int64(n),
		Buyer:  strings.Repeat("b", 160),
	}
}

func fillList(client redisconn.Client, n int) error {
	l := queue.NewList(client, 0, queue.Config{})
	var part []queue.Message
	for i := 1; i <= n; i++ {
		if part = append(part, drainOrder(i)); len(part) == queue.MaxBatch || i == n {
			if err := l.Push(context.Background(), part...); err != nil {
				return err
			}
			part = part[:0]
		}
	}
	return nil
}

func drainList(limit int) func(redisconn.Client, int) error {
	return func(client redisconn.Client, n int) error {
		l := queue.NewList(client, 0, queue.Config{})
		return concurrently(n, func() (int, error) {
			total, ack := 0, ""
			for {
				b, lost, err := queuetest.Take(context.Background(), l, limit, ack)
				if lost {
					err = errors.New("a lease was lost")
				}
				if err != nil || len(b.Messages) == 0 {
					return total, err
				}
				total += len(b.Messages)
				ack = b.ID
			}
		})
	}
}

type nothing func(n int)

func (f nothing) Write(_ context.Context, orders []sale.Order) error { f(len(orders)); return nil }

// drainWorker runs the real worker over a store that does nothing.
func drainWorker(client redisconn.Client, n int) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var written atomic.Int64
	all := make(chan struct{})
	store := nothing(func(k int) {
		if written.Add(int64(k)) == int64(n) {
			close(all)
		}
	})
	w := worker.New(queue.NewList(client, 0, queue.Config{}), store,
		worker.Config{Concurrency: drainWorkers, Idle: 10 * time.Millisecond})
	ran := make(chan error)
	go func() { ran <- w.Run(ctx) }()
	<-all
	stop()
	return <-ran
}

func fillStream(client redisconn.Client, n int) error {
	ctx := context.Background()
	if err := client.XGroupCreateMkStream(ctx, "stream", "group", "0").Err(); err != nil {
		return err
	}
	payload := strings.Repeat("b", 200)
	for i := 0; i < n; i += 1000 {
		p := client.Pipeline()
		for range min(1000, n-i) {
			p.XAdd(ctx, &redis.XAddArgs{Stream: "stream", Values: []any{"m", payload}})
		}
		if _, err := p.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

func drainStream(client redisconn.Client, n int) error {
	ctx := context.Background()
	return concurrently(n, func() (int, error) {
		total := 0
		consumer := queue.NewConsumerName()
		for {
			read, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{
				Group: "group", Consumer: consumer, Streams: []string{"stream", ">"}, Count: 100, Block: -1,
			}).Result()
			if errors.Is(err, redis.Nil) {
				return total, nil
			}
			if err != nil {
				return total, err
			}
			ids := make([]string, len(read[0].Messages))
			for i, m := range read[0].Messages {
				ids[i] = m.ID
			}
			p := client.Pipeline()
			p.XAck(ctx, "stream", "group", ids...)
			p.XDel(ctx, "stream", ids...)
			if _, err := p.Exec(ctx); err != nil {
				return total, err
			}
			total += len(ids)
		}
	})
}

// concurrently runs the drains of four workers, and checks that together they have drained n messages.
func concurrently(n int, drain func() (int, error)) error {
	var mu sync.Mutex
	var all []error
	total := 0
	var wg sync.WaitGroup
	for range drainWorkers {
		wg.Go(func() {
			got, err := drain()
			mu.Lock()
			defer mu.Unlock()
			total += got
			all = append(all, err)
		})
	}
	wg.Wait()
	if total != n {
		all = append(all, errors.New("some messages were not drained"))
	}
	return errors.Join(all...)
}
