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

	"sluice/backend/keyspace"
	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/sale"
	"sluice/internal/testenv"
)

// lanes gives every fixture a lane of its own, so that they can share a server.
var lanes atomic.Int64

// drivers are those that keep messages in Redis.
var drivers = map[string]struct {
	open func(redis.UniversalClient, keyspace.Lane, queue.Config) queuetest.Queue
	push func(c redis.Cmdable, lane keyspace.Lane, text string) error // as somebody else would
}{
	"List": {
		func(c redis.UniversalClient, lane keyspace.Lane, cfg queue.Config) queuetest.Queue {
			return queue.NewList(c, lane, cfg)
		},
		func(c redis.Cmdable, lane keyspace.Lane, text string) error {
			return c.LPush(context.Background(), lane.Ready(), text).Err()
		},
	},
	"Stream": {
		func(c redis.UniversalClient, lane keyspace.Lane, cfg queue.Config) queuetest.Queue {
			return queue.NewStream(c, lane, cfg)
		},
		func(c redis.Cmdable, lane keyspace.Lane, text string) error { return addEntry(c, lane, "m", text) },
	},
}

func addEntry(c redis.Cmdable, lane keyspace.Lane, fields ...string) error {
	return c.XAdd(context.Background(), &redis.XAddArgs{Stream: lane.Orders(), Values: fields}).Err()
}

func TestListOnRedis(t *testing.T)       { onRedis(t, "List") }
func TestStreamOnRedis(t *testing.T)     { onRedis(t, "Stream") }
func TestListOnMiniredis(t *testing.T)   { onMiniredis(t, "List") }
func TestStreamOnMiniredis(t *testing.T) { onMiniredis(t, "Stream") }

// onRedis makes time pass by moving every deadline into the past, which is the same thing to a queue that only
// compares them with the server's clock.
func onRedis(t *testing.T, driver string) {
	client := testenv.StartRedis(t).Client()
	queuetest.Run(t, func(t testing.TB, cfg queue.Config) queuetest.Fixture {
		lane := keyspace.Lane(lanes.Add(1))
		return fixture(t, driver, client, lane, cfg, func(d time.Duration) {
			for _, key := range []string{lane.Leases(), lane.Delayed()} {
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

// onMiniredis runs on the embedded Redis, whose clock stands still but for SetTime.
func onMiniredis(t *testing.T, driver string) {
	m := miniredis.RunT(t)
	now := time.Now()
	m.SetTime(now)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	queuetest.Run(t, func(t testing.TB, cfg queue.Config) queuetest.Fixture {
		return fixture(t, driver, client, keyspace.Lane(lanes.Add(1)), cfg, func(d time.Duration) {
			now = now.Add(d)
			m.SetTime(now)
		})
	})
}

func fixture(t testing.TB, driver string, client *redis.Client, lane keyspace.Lane, cfg queue.Config, advance func(time.Duration)) queuetest.Fixture {
	list := func(key string) []string {
		texts, err := client.LRange(context.Background(), key, 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		return texts
	}
	d := drivers[driver]
	return queuetest.Fixture{
		Queue:   d.open(client, lane, cfg),
		Advance: advance,
		Batch: func(id string) []string {
			texts := list(lane.Batch(id))
			for _, e := range entries(t, client, lane) {
				if e.batch == id {
					texts = append(texts, e.Text)
				}
			}
			return texts
		},
		PushRaw: func(text string) {
			if err := d.push(client, lane, text); err != nil {
				t.Fatal(err)
			}
		},
		Locate: func() map[sale.OrderID][]string { return locate(t, client, lane, list) },
	}
}

type entry struct {
	keyspace.Entry

	batch string // empty: nobody has taken it
}

// entries are those of the stream of a lane. Each that was given out is pending for a batch, and each that is pending is there.
func entries(t testing.TB, client *redis.Client, lane keyspace.Lane) []entry {
	t.Helper()
	ctx := context.Background()
	if client.XLen(ctx, lane.Orders()).Val() == 0 {
		return nil
	}
	batches, delivered := map[string]string{}, ""
	for _, g := range client.XInfoGroups(ctx, lane.Orders()).Val() {
		delivered = g.LastDeliveredID
		if g.Pending == 0 {
			continue
		}
		pending, err := client.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: lane.Orders(), Group: g.Name, Start: "-", End: "+", Count: 100_000}).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pending {
			batches[p.ID] = p.Consumer
		}
	}
	answer, err := client.Do(ctx, "XRANGE", lane.Orders(), "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := keyspace.DecodeEntries(answer)
	if err != nil {
		t.Fatal(err)
	}
	var all []entry
	out := delivered != ""
	for _, e := range decoded {
		batch := batches[e.ID]
		if batch != "" {
			delete(batches, e.ID)
			if client.ZScore(ctx, lane.Leases(), batch).Err() != nil {
				t.Fatalf("entry %s is pending for %s, which is no lease", e.ID, batch)
			}
		}
		all = append(all, entry{e, batch})
		if batch == "" && out && len(client.XRange(ctx, lane.Orders(), "("+delivered, e.ID).Val()) == 0 {
			t.Fatalf("entry %s was given out and is pending for nobody", e.ID)
		}
	}
	if len(batches) > 0 {
		t.Fatalf("entries are pending and are not there: %v", batches)
	}
	return all
}

func locate(t testing.TB, client *redis.Client, lane keyspace.Lane, list func(string) []string) map[sale.OrderID][]string {
	found := map[sale.OrderID][]string{}
	add := func(place string, texts ...string) {
		for _, text := range texts {
			m, err := keyspace.DecodeMessage(text)
			if err != nil {
				t.Fatalf("%s holds %q: %v", place, text, err)
			}
			found[m.ID] = append(found[m.ID], place)
		}
	}
	ctx := context.Background()
	add("ready", list(lane.Ready())...)
	inStream := entries(t, client, lane)
	for _, e := range inStream {
		add(cmp.Or(e.batch, "ready"), e.Text)
	}
	add("delayed", client.ZRange(ctx, lane.Delayed(), 0, -1).Val()...)
	// Every batch there is, leased or not: a batch without a lease would never be found again.
	prefix := lane.BatchPrefix()
	for _, key := range client.Keys(ctx, escapeGlob(prefix)+"*").Val() {
		add(key[len(prefix):], list(key)...)
	}
	leases := client.ZRange(ctx, lane.Leases(), 0, -1).Val()
	for _, id := range leases {
		if client.Exists(ctx, lane.Batch(id)).Val() == 0 && !slices.ContainsFunc(inStream, func(e entry) bool { return e.batch == id }) {
			t.Fatalf("lease %s has no batch", id)
		}
	}
	letters := client.HGetAll(ctx, lane.DeadLetters()).Val()
	for key, text := range letters {
		id, err := sale.ParseOrderID(key)
		if err != nil {
			t.Fatalf("dead letter %q: %v", key, err)
		}
		if client.ZScore(ctx, lane.Dead(), key).Err() != nil {
			t.Fatalf("dead letter %q has no time of death", key)
		}
		found[id] = append(found[id], "dead")
		if line := lineOf(t, key, text); client.ZScore(ctx, lane.DeadSales(), line).Err() != nil {
			t.Fatalf("dead letter %q is not in the list by sale as %q", key, line)
		}
	}
	if n := client.ZCard(ctx, lane.DeadSales()).Val(); int(n) != len(letters) {
		t.Fatalf("%d dead letters in the list by sale, and there are %d", n, len(letters))
	}
	if n := client.ZCard(ctx, lane.Dead()).Val(); int(n) != len(letters) {
		t.Fatalf("%d times of death, %d letters", n, len(letters))
	}
	return found
}

// lineOf is where a letter belongs in the list by sale.
func lineOf(t testing.TB, key, text string) string {
	var letter struct{ Message, Unit string }
	if err := json.Unmarshal([]byte(text), &letter); err != nil {
		t.Fatalf("dead letter %q: %v", key, err)
	}
	m, err := keyspace.DecodeMessage(letter.Message)
	if err != nil {
		return " 0 " + key
	}
	return keyspace.EncodeDeadLine(keyspace.DeadLine{Key: key, Message: m, Backed: letter.Unit != "none"})
}

func escapeGlob(s string) string {
	out := ""
	for _, r := range s {
		if r == '*' || r == '?' || r == '[' || r == ']' || r == '\\' {
			out += `\`
		}
		out += string(r)
	}
	return out
}
