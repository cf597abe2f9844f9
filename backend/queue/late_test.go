package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	redisscript "sluice/lua/redis"
	"sluice/test/testenv"
)

// A watcher finds expired leases and requeues them in a second step. A late worker may extend its lease in between.
func TestReclaimSkipsALeaseExtendedMeanwhile(t *testing.T) {
	mini := miniredis.RunT(t)
	now := time.Now()
	mini.SetTime(now)
	client := func() redisconn.Client {
		c := testenv.NewClient(mini.Addr())
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	l := queue.NewList(client(), keyspace.Shard(0), queue.Config{Lease: time.Second})
	push(t, l, 2)
	b := take(t, l, 2)
	// loads the scripts, so that later calls run them by digest
	if n, err := l.Reclaim(t.Context(), 10); n != 0 || err != nil {
		t.Fatalf("reclaimed %d live leases, %v", n, err)
	}
	now = now.Add(2 * time.Second)
	mini.SetTime(now)

	looked := 0
	watching := client()
	watching.AddHook(afterScript(redisscript.Load("watch").Hash(), func() {
		looked++
		if lost, err := l.Extend(t.Context(), b.ID); err != nil || lost {
			t.Errorf("extend: lost=%v, %v", lost, err)
		}
	}))
	n, err := queue.NewList(watching, keyspace.Shard(0), queue.Config{Lease: time.Second}).Reclaim(t.Context(), 10)
	if err != nil || n != 0 || looked != 1 {
		t.Errorf("reclaimed %d extended leases in %d searches, %v", n, looked, err)
	}
	if lost, err := l.Ack(t.Context(), b.ID); err != nil || lost {
		t.Errorf("the worker lost its batch: lost=%v, %v", lost, err)
	}
}

// afterScript calls then each time the script has been run.
func afterScript(sha string, then func()) testenv.Commands {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); err == nil && len(args) > 1 && args[1] == sha {
			then()
		}
		return err
	}
}
