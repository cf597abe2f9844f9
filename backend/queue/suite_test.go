package queue_test

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

// shards gives every fixture a shard of its own, so that they can share a server.
var shards atomic.Int64

// drivers are those that keep messages in Redis.
var drivers = map[string]struct {
	stream bool
	push   func(c redis.Cmdable, shard keyspace.Shard, text string) error // as another program would
}{
	"List": {
		false,
		func(c redis.Cmdable, shard keyspace.Shard, text string) error {
			return c.LPush(context.Background(), shard.Ready(), text).Err()
		},
	},
	"Stream": {
		true,
		func(c redis.Cmdable, shard keyspace.Shard, text string) error { return addEntry(c, shard, "m", text) },
	},
}

func addEntry(c redis.Cmdable, shard keyspace.Shard, fields ...string) error {
	return c.XAdd(context.Background(), &redis.XAddArgs{Stream: shard.Orders(), Values: fields}).Err()
}

func TestListOnRedis(t *testing.T)       { onRedis(t, "List") }
func TestStreamOnRedis(t *testing.T)     { onRedis(t, "Stream") }
func TestListOnMiniredis(t *testing.T)   { onMiniredis(t, "List") }
func TestStreamOnMiniredis(t *testing.T) { onMiniredis(t, "Stream") }

// The queue is on a Redis Cluster, to which the client connects as processes do: the keys of a shard are on the master
// of its slot.
func TestOnCluster(t *testing.T) {
	server, err := redisconn.NewServer(testenv.StartRedisMasters(t, 3).URL)
	if err != nil {
		t.Fatal(err)
	}
	for driver := range drivers {
		t.Run(driver, func(t *testing.T) {
			onServer(t, driver, func(t testing.TB, shard keyspace.Shard) redisconn.Client {
				client := server.For(shard.Ready()).Open(redisconn.Blocking(2))
				t.Cleanup(func() { _ = client.Close() })
				return client
			})
		})
	}
}

func onRedis(t *testing.T, driver string) {
	client := testenv.StartRedis(t).Client()
	onServer(t, driver, func(testing.TB, keyspace.Shard) redisconn.Client { return client })
}

// onServer advances time by moving every deadline into the past: the queue only compares deadlines with the clock of
// the server.
func onServer(t *testing.T, driver string, open func(testing.TB, keyspace.Shard) redisconn.Client) {
	runSuite(t, func(t testing.TB, cfg queue.Config) suite {
		shard := keyspace.Shard(shards.Add(1))
		client := open(t, shard)
		return fixture(t, driver, client, shard, cfg, func(d time.Duration) {
			for _, key := range []string{shard.Leases(), shard.Delayed()} {
				members, err := client.ZRange(context.Background(), key, 0, -1).Result()
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range members {
					client.ZIncrBy(context.Background(), key, -float64(d.Milliseconds()), m)
				}
			}
		})
	})
}

// onMiniredis runs on the embedded Redis. Its clock stands still except for SetTime.
func onMiniredis(t *testing.T, driver string) {
	m := miniredis.RunT(t)
	now := time.Now()
	m.SetTime(now)
	client := testenv.NewClient(m.Addr())
	t.Cleanup(func() { _ = client.Close() })
	runSuite(t, func(t testing.TB, cfg queue.Config) suite {
		return fixture(t, driver, client, keyspace.Shard(shards.Add(1)), cfg, func(d time.Duration) {
			now = now.Add(d)
			m.SetTime(now)
		})
	})
}

func fixture(
	t testing.TB,
	driver string,
	client redisconn.Client,
	shard keyspace.Shard,
	cfg queue.Config,
	advance func(time.Duration),
) suite {
	list := func(key string) []string {
		texts, err := client.LRange(context.Background(), key, 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		return texts
	}
	d := drivers[driver]
	return suite{
		Queue:   listOf(driver, client, shard, cfg),
		Advance: advance,
		Batch: func(id string) []string {
			texts := list(shard.Batch(id))
			for _, e := range entries(t, client, shard) {
				if e.batch == id {
					texts = append(texts, e.text)
				}
			}
			return texts
		},
		PushRaw: func(text string) {
			if err := d.push(client, shard, text); err != nil {
				t.Fatal(err)
			}
		},
		Locate: func() map[sale.OrderID][]string { return locate(t, client, shard, list) },
	}
}

type entry struct {
	id, text string
	batch    string // empty: not leased
}

// entries returns the entries of the stream of a shard. It checks that each delivered entry is pending for a batch, and
// that each pending entry exists.
func entries(t testing.TB, client redisconn.Client, shard keyspace.Shard) []entry {
	t.Helper()
	ctx := context.Background()
	if client.XLen(ctx, shard.Orders()).Val() == 0 {
		return nil
	}
	batches, delivered := map[string]string{}, ""
	for _, g := range client.XInfoGroups(ctx, shard.Orders()).Val() {
		delivered = g.LastDeliveredID
		if g.Pending == 0 {
			continue
		}
		pending, err := client.XPendingExt(
			ctx, &redis.XPendingExtArgs{Stream: shard.Orders(), Group: g.Name, Start: "-", End: "+", Count: 100_000},
		).
			Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pending {
			batches[p.ID] = p.Consumer
		}
	}
	read, err := client.XRange(ctx, shard.Orders(), "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	var all []entry
	out := delivered != ""
	for _, e := range read {
		batch := batches[e.ID]
		if batch != "" {
			delete(batches, e.ID)
			if client.ZScore(ctx, shard.Leases(), batch).Err() != nil {
				t.Fatalf("entry %s is pending for %s, which is no lease", e.ID, batch)
			}
		}
		all = append(all, entry{e.ID, keyspace.EntryText(e.Values), batch})
		if batch == "" && out && len(client.XRange(ctx, shard.Orders(), "("+delivered, e.ID).Val()) == 0 {
			t.Fatalf("entry %s was delivered and is pending for no consumer", e.ID)
		}
	}
	if len(batches) > 0 {
		t.Fatalf("entries are pending and do not exist: %v", batches)
	}
	return all
}

func locate(
	t testing.TB,
	client redisconn.Client,
	shard keyspace.Shard,
	list func(string) []string,
) map[sale.OrderID][]string {
	found := map[sale.OrderID][]string{}
	add := func(key string, texts ...string) {
		for _, text := range texts {
			m, err := keyspace.DecodeMessage(text)
			if err != nil {
				t.Fatalf("%s holds %q: %v", key, text, err)
			}
			found[m.ID] = append(found[m.ID], key)
		}
	}
	ctx := context.Background()
	add("ready", list(shard.Ready())...)
	inStream := entries(t, client, shard)
	for _, e := range inStream {
		add(cmp.Or(e.batch, "ready"), e.text)
	}
	add("delayed", client.ZRange(ctx, shard.Delayed(), 0, -1).Val()...)
	// All batches, leased or not: one without a lease is lost.
	prefix := shard.Batch("")
	for _, key := range client.Keys(ctx, prefix+"*").Val() {
		add(key[len(prefix):], list(key)...)
	}
	leases := client.ZRange(ctx, shard.Leases(), 0, -1).Val()
	for _, id := range leases {
		if client.Exists(ctx, shard.Batch(id)).Val() == 0 &&
			!slices.ContainsFunc(inStream, func(e entry) bool { return e.batch == id }) {
			t.Fatalf("lease %s has no batch", id)
		}
	}
	dead := client.HGetAll(ctx, shard.Dead().Letters()).Val()
	for key, text := range dead {
		id, err := sale.ParseOrderID(key)
		if err != nil {
			t.Fatalf("dead letter %q: %v", key, err)
		}
		if client.ZScore(ctx, shard.Dead().Times(), key).Err() != nil {
			t.Fatalf("dead letter %q has no time", key)
		}
		found[id] = append(found[id], "dead")
		if line := lineOf(t, key, text); client.ZScore(ctx, shard.Dead().Index(), line).Err() != nil {
			t.Fatalf("dead letter %q is not in the list by sale as %q", key, line)
		}
	}
	if n := client.ZCard(ctx, shard.Dead().Index()).Val(); int(n) != len(dead) {
		t.Fatalf("%d dead letters in the list by sale, and there are %d", n, len(dead))
	}
	if n := client.ZCard(ctx, shard.Dead().Times()).Val(); int(n) != len(dead) {
		t.Fatalf("%d times, %d letters", n, len(dead))
	}
	return found
}

// lineOf returns the line of a letter in the index by sale.
func lineOf(t testing.TB, key, text string) string {
	var dead struct{ Message, Unit string }
	if err := json.Unmarshal([]byte(text), &dead); err != nil {
		t.Fatalf("dead letter %q: %v", key, err)
	}
	m, err := keyspace.DecodeMessage(dead.Message)
	if err != nil {
		return " 0 " + key
	}
	return keyspace.EncodeDeadLine(key, m, dead.Unit != "none")
}
