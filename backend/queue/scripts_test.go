package queue_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	redisscript "sluice/lua/redis"
	"sluice/test/testenv"
)

// The ids of a batch that prepare leases, and of the next batch of the same consumer.
const held, next = "w-901-1", "w-901-2"

// operations returns every call that writes, by name, for a shard that prepare has filled.
func operations(l *queue.List, batch string) map[string]func(t *testing.T) error {
	fail := []queue.Failure{{ID: message(1).ID, Reason: "no"}, {ID: message(2).ID, Reason: "no", Permanent: true}}
	return map[string]func(t *testing.T) error{
		"push":     func(t *testing.T) error { return l.Push(t.Context(), message(90)) },
		"register": func(t *testing.T) error { _, err := l.Register(t.Context(), "w"); return err },
		"take":     func(t *testing.T) error { _, _, err := l.TakeAs(t.Context(), next, 1, ""); return err },
		"take+ack": func(t *testing.T) error { _, _, err := l.TakeAs(t.Context(), next, 5, batch); return err },
		"replay":   func(t *testing.T) error { _, _, err := l.TakeAs(t.Context(), batch, 5, ""); return err },
		"ack":      func(t *testing.T) error { _, err := l.Ack(t.Context(), batch); return err },
		"fail":     func(t *testing.T) error { _, err := l.Ack(t.Context(), batch, fail...); return err },
		"release":  func(t *testing.T) error { _, err := l.Release(t.Context(), batch); return err },
		"extend":   func(t *testing.T) error { _, err := l.Extend(t.Context(), batch); return err },
		"reclaim":  func(t *testing.T) error { _, err := l.Reclaim(t.Context(), 5); return err },
		"die":      func(t *testing.T) error { _, err := l.Reclaim(t.Context(), 5); return err },
		"promote":  func(t *testing.T) error { _, err := l.Reclaim(t.Context(), 5); return err },
		"retry":    func(t *testing.T) error { return l.RetryDead(t.Context(), message(50).ID) },
		"begin":    func(t *testing.T) error { _, err := l.BeginCancel(t.Context(), message(50).ID); return err },
		"finish":   func(t *testing.T) error { return l.FinishCancel(t.Context(), message(51).ID, true) },
		"drop":     func(t *testing.T) error { return l.DropRaw(t.Context(), "raw:ab") },
	}
}

// listOf returns a List of a driver.
func listOf(driver string, c redisconn.Client, shard keyspace.Shard, cfg queue.Config) *queue.List {
	cfg.Stream = drivers[driver].stream
	return queue.NewList(c, shard, cfg)
}

// engine is one kind of Redis.
type engine struct {
	client redisconn.Client
	dump   func() map[string]string // everything it holds
}

// onEachRedis runs a test on a real Redis and on the embedded one, with a client without timeouts, for busy machines.
func onEachRedis(t *testing.T, test func(*testing.T, engine)) {
	connect := func(t *testing.T, addr string) redisconn.Client {
		client := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	t.Run("redis", func(t *testing.T) {
		client := connect(t, testenv.StartRedis(t).Addr)
		test(t, engine{client, func() map[string]string { return dump(t, client) }})
	})
	t.Run("miniredis", func(t *testing.T) {
		m := miniredis.RunT(t)
		test(t, engine{connect(t, m.Addr()), func() map[string]string { return map[string]string{"all": m.Dump()} }})
	})
}

// Each key in turn has a wrong type. A script that fails after its first write would lose messages, because Redis does
// not roll back.
func TestScriptsThatFailChangeNothing(t *testing.T) { onEachRedis(t, scriptsThatFail) }

func scriptsThatFail(t *testing.T, e engine) {
	for driver := range drivers {
		t.Run(driver, func(t *testing.T) { scriptsOfADriverThatFail(t, e, driver) })
	}
}

func scriptsOfADriverThatFail(t *testing.T, e engine, driver string) {
	client := e.client
	ctx := t.Context()
	shard := keyspace.Shard(7)
	cfg := queue.Config{Lease: time.Millisecond, MaxCrashes: 1, BackoffBase: time.Millisecond}
	rest := []string{
		shard.Ready(),
		shard.Delayed(),
		shard.Leases(),
		shard.Wake(),
		shard.Attempts(),
		shard.Crashes(),
		shard.Dead().Times(),
		shard.Dead().Letters(),
		shard.Dead().Index(),
		shard.Stock("drop"),
		shard.Buyers("drop"),
		shard.Sale("drop"),
		shard.Batch(held),
		shard.Orders(),
		shard.Consumers(),
	}
	failed := 0
	l := listOf(driver, client, shard, cfg)
	for name := range operations(nil, "") {
		for _, key := range rest {
			client.FlushAll(ctx)
			prepare(t, client, l, shard)
			switch name { // one step of the two
			case "reclaim", "die":
				if name == "die" {
					client.LPop(ctx, shard.Batch(held))
				}
				soon := float64(time.Now().Add(time.Minute).UnixMilli())
				client.ZAdd(ctx, shard.Delayed(), redis.Z{Score: soon, Member: keyspace.EncodeMessage(message(60))})
			case "promote":
				client.Del(ctx, shard.Leases())
			}
			if err := client.Set(ctx, key, "of another type", 0).Err(); err != nil {
				t.Fatal(err)
			}
			before := e.dump()
			err := operations(l, held)[name](t)
			if err == nil {
				continue // it does not read this key
			}
			failed++
			if errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("%s with a wrong %s: %v, want an error that is not temporary", name, key, err)
			}
			if after := e.dump(); !maps.Equal(before, after) {
				t.Errorf("%s with a wrong %s failed after a write: %v", name, key, err)
			}
		}
	}
	if failed < 40 {
		t.Errorf("only %d calls failed", failed)
	}
}

func TestPushAddsToTheListOrTheStream(t *testing.T) {
	onEachRedis(t, func(t *testing.T, e engine) {
		for i, stream := range []bool{false, true} {
			shard, ctx := keyspace.Shard(i), t.Context()
			m := queue.Message{ID: 1, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1}
			if err := queue.NewList(e.client, shard, queue.Config{Stream: stream}).Push(ctx, m); err != nil {
				t.Fatal(err)
			}
			inList, inStream := e.client.LLen(ctx, shard.Ready()).Val(), e.client.XLen(ctx, shard.Orders()).Val()
			if inStream == 1 != stream || inList+inStream != 1 {
				t.Errorf("stream %v: %d messages in the list, %d in the stream", stream, inList, inStream)
			}
		}
	})
}

// After SCRIPT FLUSH or a restart of Redis, a script is loaded again.
func TestFlushedScriptsAreLoadedAgain(t *testing.T) {
	onEachRedis(t, func(t *testing.T, e engine) {
		shard := keyspace.Shard(7)
		for name := range operations(nil, "") {
			l := queue.NewList(e.client, shard, queue.Config{Stream: true, MaxCrashes: 1}) // runs all list scripts, and more
			e.client.FlushAll(t.Context())
			prepare(t, e.client, l, shard)
			if err := e.client.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			before := e.dump()
			if err := operations(l, held)[name](t); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if maps.Equal(before, e.dump()) {
				t.Errorf("%s changed nothing", name)
			}
		}
	})
}

// A rebuild may begin between take and dead_letter, and any key may have another type.
func TestFailedDeadLetterChangesNothing(t *testing.T) {
	onEachRedis(t, func(t *testing.T, e engine) {
		ctx, shard := t.Context(), keyspace.Shard(7)
		wrong := func(key string) func() error {
			return func() error { return e.client.Set(ctx, key, "of another type", 0).Err() }
		}
		for _, c := range []struct {
			error string
			make  func() error
		}{
			{"HELD", func() error { return e.client.HSet(ctx, shard.Guard(), "rebuilding", "1").Err() }},
			{"", wrong(shard.Leases())}, {"", wrong(shard.Batch("b"))}, {"", wrong(shard.Dead().Times())},
			{"", wrong(shard.Dead().Letters())}, {"", wrong(shard.Dead().Index())}, {"", wrong(shard.Orders())},
		} {
			e.client.FlushAll(ctx)
			e.client.RPush(ctx, shard.Batch("b"), "no message", keyspace.EncodeMessage(message(3)))
			e.client.ZAdd(ctx, shard.Leases(), redis.Z{Score: 1, Member: "b"})
			if err := c.make(); err != nil {
				t.Fatal(err)
			}
			before := e.dump()
			keys := []string{
				shard.Leases(),
				shard.Batch("b"),
				shard.Dead().Times(),
				shard.Dead().Letters(),
				shard.Guard(),
				shard.Orders(),
				shard.Dead().Index(),
			}
			err := redisscript.Load("dead_letter").Run(ctx, e.client, keys, "b", "why", "no message", "bm8=").Err()
			if err == nil || !strings.HasPrefix(err.Error(), c.error) {
				t.Errorf("the error is %v", err)
			}
			if after := e.dump(); !maps.Equal(before, after) {
				t.Errorf("it failed after a write: %v", err)
			}
		}
	})
}

// A move holds the shard and copies its dead letters. A letter that was dropped during the move would return with the
// copy.
func TestHeldShardKeepsItsDeadTexts(t *testing.T) {
	onEachRedis(t, func(t *testing.T, e engine) {
		ctx, shard := t.Context(), keyspace.Shard(7)
		l := queue.NewList(e.client, shard, queue.Config{})
		prepare(t, e.client, l, shard)
		e.client.HSet(ctx, shard.Guard(), "rebuilding", "1")
		before := e.dump()
		if err := l.DropRaw(ctx, "raw:ab"); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("the error is %v", err)
		}
		if after := e.dump(); !maps.Equal(before, after) {
			t.Error("the dead letters have changed")
		}
	})
}

// The entries of a batch become dead letters, and messages of the list remain. The batch leaves no consumer of the
// stream.
func TestInvalidEntriesLeaveNoConsumer(t *testing.T) {
	onEachRedis(t, func(t *testing.T, e engine) {
		ctx, shard := t.Context(), keyspace.Shard(7)
		l := queue.NewList(e.client, shard, queue.Config{Stream: true})
		if err := addEntry(e.client, shard, "not", "a message"); err != nil {
			t.Fatal(err)
		}
		e.client.LPush(ctx, shard.Ready(), keyspace.EncodeMessage(message(1)))
		b, _, err := queuetest.Take(ctx, l, 2, "")
		if err != nil || len(b.Messages) != 1 {
			t.Fatalf("took %+v, %v", b, err)
		}
		if lost, err := l.Ack(ctx, b.ID); lost || err != nil {
			t.Fatalf("lost %v, %v", lost, err)
		}
		left, err := e.client.XInfoConsumers(ctx, shard.Orders(), keyspace.OrdersGroup).Result()
		if err != nil || len(left) != 0 {
			t.Errorf("consumers %+v, %v", left, err)
		}
	})
}

// prepare fills every key of a shard: an expired lease, a due delayed message, ready messages and dead letters.
func prepare(t *testing.T, client redisconn.Client, l *queue.List, shard keyspace.Shard) {
	t.Helper()
	ctx := t.Context()
	deadLetter(t, l, message(50), message(51))
	if _, err := l.BeginCancel(ctx, message(51).ID); err != nil {
		t.Fatal(err)
	}
	if err := l.Push(ctx, message(60)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Ack(ctx, take(t, l, 1).ID, queue.Failure{ID: message(60).ID, Reason: "no"}); err != nil {
		t.Fatal(err)
	}
	client.ZAdd(ctx, shard.Delayed(), redis.Z{Score: 1, Member: keyspace.EncodeMessage(message(60))})
	client.HSet(ctx, shard.Consumers(), "901", held)
	client.LPush(ctx, shard.Batch(held), keyspace.EncodeMessage(message(1)))
	client.LPush(ctx, shard.Batch(held), keyspace.EncodeMessage(message(2)))
	client.ZAdd(ctx, shard.Leases(), redis.Z{Score: 1, Member: held})
	client.HSet(ctx, shard.Crashes(), message(1).ID.String(), "1")
	client.ZAdd(ctx, shard.Dead().Times(), redis.Z{Score: 1, Member: "raw:ab"})
	client.HSet(ctx, shard.Dead().Letters(), "raw:ab", `{"state":"dead","raw":"AAA="}`)
	client.ZAdd(ctx, shard.Dead().Index(), redis.Z{Member: " 0 raw:ab"})
	if err := l.Push(ctx, message(70), message(71)); err != nil {
		t.Fatal(err)
	}
	client.HSet(ctx, shard.Sale("drop"), "returned", "7")
	client.Set(ctx, shard.Stock("drop"), "3", 0)
	client.HSet(ctx, shard.Buyers("drop"), "bob", message(51).ID.String())
	client.Del(ctx, shard.Wake())
}

func dump(t *testing.T, client redisconn.Client) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, key := range client.Keys(t.Context(), "*").Val() {
		all[key] = client.Dump(t.Context(), key).Val()
	}
	return all
}
