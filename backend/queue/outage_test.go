package queue_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

func reads(l *queue.List) map[string]func(t *testing.T) error {
	return map[string]func(t *testing.T) error{
		"stats":   func(t *testing.T) error { _, err := l.Stats(t.Context()); return err },
		"wait":    func(t *testing.T) error { _, err := l.Wait(t.Context(), time.Millisecond); return err },
		"letters": func(t *testing.T) error { _, _, err := l.DeadLetters(t.Context(), queue.DeadQuery{}); return err },
		"letter":  func(t *testing.T) error { _, err := l.DeadLetter(t.Context(), message(1).ID); return err },
	}
}

func TestEveryCallReturnsErrUnavailableWithoutRedis(t *testing.T) {
	t.Parallel() // it waits
	server := testenv.StartRedis(t)
	// a call without a timeout of its own takes this long
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	defer client.Close()
	l := queue.NewList(client, 0, queue.Config{CallTimeout: 100 * time.Millisecond})
	push(t, l, 1)

	all := operations(l, held)
	for name, call := range reads(l) {
		all[name] = call
	}
	check := func(state string) {
		t.Helper()
		for name, call := range all {
			start := time.Now()
			if err := call(t); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("%s while Redis is %s: %v", name, state, err)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("%s while Redis is %s took %s", name, state, took)
			}
		}
	}
	server.Pause()
	check("frozen")
	server.Resume()
	server.Kill()
	check("dead")
}

func TestReadOnlyRedisIsUnavailable(t *testing.T) {
	server := testenv.StartRedis(t)
	client := testenv.NewOnceClient(server.Addr)
	defer client.Close()
	l := queue.NewList(client, 0, queue.Config{})
	push(t, l, 1)
	if err := client.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := queuetest.Take(t.Context(), l, 1, ""); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("take from a replica: %v", err)
	}
}

// A master that becomes a replica ends blocking calls with an error. The queue reports it as unavailable.
func TestWaitOnAMasterThatIsDemotedIsUnavailable(t *testing.T) {
	server := testenv.StartRedis(t)
	admin := server.Client()
	client := testenv.NewOnceClient(server.Addr)
	defer client.Close()
	l := queue.NewList(client, 0, queue.Config{})
	waited := make(chan error, 1)
	go func() { _, err := l.Wait(t.Context(), time.Minute); waited <- err }()
	testenv.Eventually(t, time.Minute, "a client is blocked", func() bool {
		return strings.Contains(admin.Info(t.Context(), "clients").Val(), "blocked_clients:1")
	})
	if err := admin.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("wait: %v", err)
	}
}

func TestWaitMayOutlastTheClientsReadTimeout(t *testing.T) {
	client := redis.NewClient(
		&redis.Options{Addr: testenv.StartRedis(t).Addr, ReadTimeout: 500 * time.Millisecond, MaxRetries: -1},
	)
	defer client.Close()
	l := queue.NewList(client, 0, queue.Config{})
	if woken, err := l.Wait(t.Context(), time.Second); woken || err != nil {
		t.Errorf("an idle wait: woken=%v, %v", woken, err)
	}
}

func TestCancellationIsNotAnOutage(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := queuetest.Take(ctx, queue.NewList(client, 0, queue.Config{}), 1, "")
	if !errors.Is(err, context.Canceled) || errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("take with a cancelled context: %v", err)
	}
}

// With full memory Redis rejects commands that may use more. Purchases stop then, but the queue must still drain,
// because that frees memory.
func TestFullRedisStillDrains(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	shard := keyspace.Shard(7)
	for name := range operations(nil, "") {
		if name == "begin" {
			continue // a dead letter, which an admin settles
		}
		t.Run(name, func(t *testing.T) {
			client.ConfigSet(t.Context(), "maxmemory", "0")
			client.FlushAll(t.Context())
			l := queue.NewList(client, shard, queue.Config{MaxCrashes: 1})
			prepare(t, client, l, shard)
			if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
				t.Fatal(err)
			}
			if name == "take" { // it also makes an invalid text a dead letter
				client.ConfigSet(t.Context(), "maxmemory", "0")
				client.ZRem(t.Context(), shard.Delayed(), keyspace.EncodeMessage(message(60)))
				client.RPush(t.Context(), shard.Ready(), "invalid")
				client.ConfigSet(t.Context(), "maxmemory", "1")
			}
			before := client.HLen(t.Context(), shard.Dead().Letters()).Val()
			err := operations(l, held)[name](t)
			if n := client.HLen(t.Context(), shard.Dead().Letters()).Val(); name == "take" && n != before+1 {
				t.Errorf("%d dead letters, want the invalid text and the %d from before", n, before)
			}
			if refused := errors.Is(err, sale.ErrUnavailable); refused != (name == "push") || err != nil && !refused {
				t.Errorf("with a full memory: %v", err)
			}
		})
	}
	client.ConfigSet(t.Context(), "maxmemory", "0")
}

// A proxy passes all commands to Redis, and sometimes cuts the connection instead of passing on the reply. The Redis
// client repeats such a command. When the client gives up, the loop of the test repeats it.
func TestLostRepliesLoseNoMessages(t *testing.T) {
	server := testenv.StartRedis(t)
	proxy := cutReplies(t, server.Addr, 5)
	client := redis.NewClient(
		&redis.Options{Addr: proxy, MaxRetries: 1, MinRetryBackoff: time.Microsecond, MaxRetryBackoff: time.Millisecond},
	)
	defer client.Close()
	want := push(t, queue.NewList(server.Client(), 0, queue.Config{}), 2000)
	direct := queue.NewList(server.Client(), 0, queue.Config{})
	var reclaimed atomic.Int64
	l := queue.NewList(client, 0,
		queue.Config{MaxAttempts: 1000, BackoffBase: time.Millisecond, OnReclaim: func(n int) { reclaimed.Add(int64(n)) }})

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	seen := map[sale.OrderID]bool{}
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			consumer, ack := registered(t, direct), ""
			n := 1
			for idle, batches := 0, 0; idle < 20 && ctx.Err() == nil; {
				b, _, err := l.TakeAs(ctx, consumer.BatchID(n), 7, ack)
				if err != nil {
					continue // the same id again
				}
				n++
				ack = ""
				if len(b.Messages) == 0 {
					idle++
					_, _ = l.Wait(ctx, time.Millisecond)
					continue
				}
				idle = 0
				batches++
				if w == 0 && batches%3 == 0 { // fails one
					for ctx.Err() == nil {
						if _, err := l.Ack(ctx, b.ID, queue.Failure{ID: b.Messages[0].ID, Reason: "no"}); err == nil {
							break
						}
					}
					b.Messages = b.Messages[1:]
				} else {
					ack = b.ID
				}
				mu.Lock()
				for _, m := range b.Messages {
					seen[m.ID] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != len(want) {
		t.Errorf("%d messages were pushed, %d were taken", len(want), len(seen))
	}
	if s, err := queue.NewList(server.Client(), 0, queue.Config{}).Stats(t.Context()); err != nil || s != (queue.Stats{}) {
		t.Errorf("left over: %+v, %v", s, err)
	}
	if n := reclaimed.Load(); n > 0 {
		t.Errorf("%d messages waited for the end of a lease, although their takes were repeated", n)
	}
}

// cutReplies starts a proxy that cuts the connection instead of passing on every nth reply, and returns its address.
func cutReplies(t *testing.T, upstream string, nth int64) string {
	var replies atomic.Int64
	return testenv.ProxyTCP(t, upstream, func(client, server net.Conn) {
		for buffer := make([]byte, 1<<16); ; {
			n, err := server.Read(buffer)
			if err != nil || replies.Add(1)%nth == 0 {
				return
			}
			if _, err := client.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
}
