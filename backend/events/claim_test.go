package events_test

import (
	"errors"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	redisscript "sluice/lua/redis"

	"sluice/test/testenv"
)

// A consumer crashes, and the clock of Redis is set back: another one claims its event after the idle time.
func TestEventIsClaimedAfterTheClockWasSetBack(t *testing.T) {
	ctx, mini := t.Context(), miniredis.RunT(t)
	client := testenv.NewClient(mini.Addr())
	t.Cleanup(func() { _ = client.Close() })
	now := time.Now()
	mini.SetTime(now)
	stream := space.Events()
	err := errors.Join(client.XGroupCreateMkStream(ctx, stream, "g", "0").Err(),
		client.XAdd(ctx, &redis.XAddArgs{Stream: stream, ID: "1-0", Values: []string{"event", "{}"}}).Err(),
		client.XReadGroup(ctx, &redis.XReadGroupArgs{
			Group: "g", Consumer: "crashed", Streams: []string{stream, ">"},
		}).Err())
	if err != nil {
		t.Fatal(err)
	}
	claim := func() (claimed int) {
		t.Helper()
		const idle, limit = 30_000, 10
		all, err := redisscript.Run(ctx, client, "event_claim", []string{stream}, "g", "next", idle, limit).Slice()
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	now = now.Add(-time.Hour)
	mini.SetTime(now)
	for range 3 {
		if claim() > 0 {
			t.Fatal("claimed before the idle time")
		}
		now = now.Add(10 * time.Second)
		mini.SetTime(now)
	}
	if claim() != 1 {
		t.Error("not claimed after the idle time")
	}
	pending, err := client.XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: stream, Group: "g", Start: "-", End: "+", Count: 10,
	}).Result()
	if err != nil || len(pending) != 1 || pending[0].Consumer != "next" || pending[0].RetryCount != 2 {
		t.Errorf("%+v, %v; want the second delivery", pending, err)
	}
}
