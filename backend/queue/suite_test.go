package queue_test

import (
	"context"
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

// TestListOnRedis makes time pass by moving every deadline into the past, which is the same thing to a queue that only
// compares them with the server's clock.
func TestListOnRedis(t *testing.T) {
	client := testenv.StartRedis(t).Client()
	queuetest.Run(t, func(t testing.TB, cfg queue.Config) queuetest.Fixture {
		lane := keyspace.Lane(lanes.Add(1))
		return fixture(t, client, lane, cfg, func(d time.Duration) {
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

// TestListOnMiniredis runs on the embedded Redis, whose clock stands still but for SetTime.
func TestListOnMiniredis(t *testing.T) {
	m := miniredis.RunT(t)
	now := time.Now()
	m.SetTime(now)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	queuetest.Run(t, func(t testing.TB, cfg queue.Config) queuetest.Fixture {
		return fixture(t, client, keyspace.Lane(lanes.Add(1)), cfg, func(d time.Duration) {
			now = now.Add(d)
			m.SetTime(now)
		})
	})
}

func fixture(t testing.TB, client *redis.Client, lane keyspace.Lane, cfg queue.Config, advance func(time.Duration)) queuetest.Fixture {
	ctx := context.Background()
	list := func(key string) []string {
		texts, err := client.LRange(ctx, key, 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		return texts
	}
	return queuetest.Fixture{
		Queue:   queue.NewList(client, lane, cfg),
		Advance: advance,
		Batch:   func(id string) []string { return list(lane.Batch(id)) },
		PushRaw: func(text string) {
			if err := client.LPush(ctx, lane.Ready(), text).Err(); err != nil {
				t.Fatal(err)
			}
		},
		Locate: func() map[sale.OrderID][]string { return locate(t, client, lane, list) },
	}
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
	add("delayed", client.ZRange(ctx, lane.Delayed(), 0, -1).Val()...)
	// Every batch there is, leased or not: a batch without a lease would never be found again.
	prefix := lane.BatchPrefix()
	for _, key := range client.Keys(ctx, escapeGlob(prefix)+"*").Val() {
		add(key[len(prefix):], list(key)...)
	}
	leases := client.ZRange(ctx, lane.Leases(), 0, -1).Val()
	for _, id := range leases {
		if client.Exists(ctx, lane.Batch(id)).Val() == 0 {
			t.Fatalf("lease %s has no batch", id)
		}
	}
	letters := client.HKeys(ctx, lane.DeadLetters()).Val()
	for _, key := range letters {
		id, err := sale.ParseOrderID(key)
		if err != nil {
			t.Fatalf("dead letter %q: %v", key, err)
		}
		if client.ZScore(ctx, lane.Dead(), key).Err() != nil {
			t.Fatalf("dead letter %q has no time of death", key)
		}
		found[id] = append(found[id], "dead")
	}
	if n := client.ZCard(ctx, lane.Dead()).Val(); int(n) != len(letters) {
		t.Fatalf("%d times of death, %d letters", n, len(letters))
	}
	return found
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
