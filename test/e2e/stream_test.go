package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/test/testenv"
)

// Orders through a stream: a worker is killed with a lease, Redis loses all data, the stream has foreign entries, and
// processes have different queue drivers. Every 202 is a row at the end, and the audit balances.
func TestOrdersThroughAStream(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{backends: 2, journal: true, env: []string{"SLUICE_QUEUE=stream", "SLUICE_MAX_READY=30"}})
	const id = "drop"
	s.createSale(id, 100)
	redis, orders := s.redis.Client(), keyspace.Shard(0).Orders()
	buy := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if a := s.buy(id, fmt.Sprint("b", i)); a.Status != 202 {
				t.Fatalf("purchase %d: %d %s", i, a.Status, a.Body)
			}
		}
	}
	buy(0, 30)
	if n := redis.XLen(t.Context(), orders).Val(); n != 30 {
		t.Errorf("%d entries, want 30", n)
	}
	if a := s.buy(id, "late"); a.Status != 503 {
		t.Errorf("a full queue: %d %s", a.Status, a.Body)
	}
	if r := s.audit(id); !r.Balanced || r.Ready != 30 {
		t.Errorf("the audit: %+v", r)
	}
	for _, fields := range [][]string{{"m", "no message"}, {"order", "12"}, {"big", strings.Repeat("x", 1<<20)}} {
		redis.Do(t.Context(), "XADD", orders, "*", fields[0], fields[1])
	}

	// No process can write orders, so the worker is killed with its lease.
	sql := s.sql()
	held, err := sql.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Exec(t.Context(), "LOCK TABLE orders IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	worker := launch(t, s.env, "worker", "--lease", "1s", "--no-watcher")
	testenv.Eventually(t, time.Minute, "a lease",
		func() bool { return redis.ZCard(t.Context(), keyspace.Shard(0).Leases()).Val() > 0 })
	worker.End(syscall.SIGKILL)
	if err := held.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	worker = launch(t, s.env, "worker", "--queue", "list", "--lease", "1s")
	s.settle(id, 30)
	testenv.Eventually(t, time.Minute, "the texts that are not orders are dead letters", func() bool {
		return redis.ZCard(t.Context(), keyspace.Shard(0).Dead().Times()).Val() == 3
	})
	worker.End(syscall.SIGTERM)

	buy(30, 40)
	list := addr(t)
	other := launch(t, s.env, "backend", "--listen", list, "--admin", addr(t), "--queue", "list")
	testenv.AwaitOK(t, "http://"+list+"/readyz")
	s.base = "http://" + list
	buy(40, 50)
	inStream := redis.XLen(t.Context(), orders).Val()
	inList := redis.LLen(t.Context(), keyspace.Shard(0).Ready()).Val()
	if inStream != 10 || inList != 10 {
		t.Errorf("%d wait in the stream and %d in the list, want 10 and 10", inStream, inList)
	}
	other.End(syscall.SIGTERM)
	s.base = s.bases[0]
	redis.FlushAll(t.Context()) // the journals of two backends hold 10 of 20, the list's had none
	// Each backend detects it on its own, so one may still find its Redis unverified after another has rebuilt it.
	for i := range 10 {
		testenv.Eventually(t, time.Minute, "a purchase from the Redis that was rebuilt",
			func() bool { return s.buy(id, fmt.Sprint("b", 50+i)).Status == 202 })
	}
	launch(t, s.env, "worker")
	if r := s.settle(id, 50); !r.Balanced || r.Left != 50 {
		t.Errorf("the final audit: %+v", r)
	}
	testenv.Eventually(t, time.Minute, "the worker to acknowledge what it has written", func() bool {
		return redis.XLen(t.Context(), orders).Val() == 0
	})
	_, errOut, code := sluiceRun(t, s.env, "worker", "--queue", "kafka")
	if code != 2 || !strings.Contains(errOut, "--queue") {
		t.Errorf("an unknown queue: exit %d, %s", code, errOut)
	}
}
