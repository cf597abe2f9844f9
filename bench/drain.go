package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/test/testenv"
)

// drains holds what all ways to empty a queue share. Use it for one of them at a time.
type drains struct {
	addr     string
	client   redisconn.Client // as sluice opens it
	plain    redisconn.Client // as the library's defaults have it
	messages []string
	batch    int     // messages that streams and rmq handle together
	spent    float64 // microseconds of Redis's processor time for one message of the last run
}

func newDrains(s *stage, n int, redisArgs ...string) *drains {
	server := testenv.StartRedis(s, redisArgs...)
	d := &drains{
		addr: server.Addr, client: openRedis(s, server.URL), plain: server.Client(), messages: make([]string, n),
		batch: perStream,
	}
	for i, o := range new(ids).orders(n) {
		d.messages[i] = keyspace.EncodeMessage(o)
	}
	return d
}

// openRedis opens a client as sluice does.
func openRedis(s *stage, url string) redisconn.Client {
	client, err := redisconn.Open(url)
	s.check(err)
	s.Cleanup(func() { _ = client.Close() })
	return client
}

// fill empties Redis and pushes all messages, a thousand in a round trip.
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

// measure times work, which handles n messages, and records the processor time of Redis for each of them.
func (d *drains) measure(ctx context.Context, n int, work func() error) (perSecond float64, err error) {
	before, err := redisCPU(ctx, d.plain)
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if err := work(); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	after, err := redisCPU(ctx, d.plain)
	d.spent = (after - before) * 1e6 / float64(n)
	return float64(n) / took.Seconds(), err
}

// empty runs the takers until nothing is left, and checks that every message was handled once.
func (d *drains) empty(
	ctx context.Context, takers int, take func(context.Context, func(n int)) error,
) (float64, error) {
	var handled atomic.Int64
	return d.measure(ctx, len(d.messages), func() error {
		var all errgroup.Group
		for range takers {
			all.Go(func() error { return take(ctx, func(n int) { handled.Add(int64(n)) }) })
		}
		err := all.Wait()
		if n := handled.Load(); err == nil && n != int64(len(d.messages)) {
			err = fmt.Errorf("%d messages handled, of %d", n, len(d.messages))
		}
		return err
	})
}
