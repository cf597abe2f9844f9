package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/queue"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/store/storetest"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

// run starts a worker over the world's queue and a store, and returns its metrics. It runs until the test ends or stop
// is called.
func (w world) run(store worker.Store) (m *trouble, stop func()) {
	w.Helper()
	m = &trouble{}
	cfg := config(m)
	cfg.Concurrency = 2
	return m, testenv.Run(w, worker.New(w.list, store, cfg).Run)
}

// trouble counts failed calls to the queue and lost leases.
type trouble struct{ calls, lost atomic.Int64 }

func (*trouble) BatchWritten(int, time.Duration) {}
func (*trouble) Paused(string, int)              {}
func (m *trouble) LeaseLost()                    { m.lost.Add(1) }
func (m *trouble) Failed(kind string) {
	if kind == worker.KindQueue {
		m.calls.Add(1)
	}
}

func (w world) awaitRows(n int64) {
	w.Helper()
	testenv.Eventually(w, 60*time.Second, fmt.Sprint(n, " rows and an empty queue"), func() bool {
		s, err := w.list.Stats(w.Context())
		return err == nil && w.sold() == n && s == queue.Stats{}
	})
}

// pushGood puts good orders on the queue.
func (w world) pushGood(from, to int) {
	w.Helper()
	for i := from; i <= to; i++ {
		o := order(i)
		o.SaleID = w.saleID
		if err := w.list.Push(w.Context(), o); err != nil {
			w.Fatal(err)
		}
	}
}

// Another program has overwritten the queue's key. The worker retries until the key is restored.
func TestWorkerRecoversFromAKeyOfTheWrongType(t *testing.T) {
	w := newWorlds(t)()
	w.client.Set(t.Context(), w.shard.Ready(), "not a list", 0)
	m, _ := w.run(w.store)
	testenv.Eventually(t, time.Minute, "the worker has failed a few times", func() bool { return m.calls.Load() >= 3 })
	w.client.Del(t.Context(), w.shard.Ready())
	w.pushGood(1, 20)
	w.awaitRows(20)
}

// gate is a store that blocks its nth and later writes until it is opened.
type gate struct {
	worker.Store
	nth    int64
	writes atomic.Int64
	at     chan struct{} // receives one for each blocked write
	open   chan struct{}
}

func newGate(store worker.Store, nth int64) *gate {
	return &gate{Store: store, nth: nth, at: make(chan struct{}, 100), open: make(chan struct{})}
}

func (g *gate) Write(ctx context.Context, orders []sale.Order) error {
	if g.writes.Add(1) >= g.nth {
		g.at <- struct{}{}
		select {
		case <-g.open:
		case <-ctx.Done():
		}
	}
	return g.Store.Write(ctx, orders)
}

// The master fails over to its replica while batches are leased, and returns as a read-only replica. Later it is
// promoted again, with the data of the other. No order is lost or becomes a dead letter, and no attempt is counted.
func TestFailoverToAReadOnlyReplicaAndBack(t *testing.T) {
	const n = 100
	w := newWorlds(t)()
	addr := redisconn.Addr(w.client)
	host, port, _ := strings.Cut(addr, ":")
	other := testenv.StartRedis(t, "--replicaof", host, port).Client()
	w.pushGood(1, n)
	g := newGate(w.store, 3)
	m, _ := w.run(g)
	<-g.at
	<-g.at // both of its loops: no further writes to Redis
	conn := redisconn.Connect(w.client)
	defer conn.Close()
	testenv.Eventually(t, time.Minute, "the replica has everything", func() bool {
		// WAIT covers the writes of its own connection, and so all earlier ones
		conn.Set(t.Context(), "barrier", 1, 0)
		got, err := conn.Wait(t.Context(), 1, time.Second).Result()
		return err == nil && got == 1
	})
	do := func(c redisconn.Client, args ...any) {
		t.Helper()
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	do(other, "REPLICAOF", "NO", "ONE")
	otherHost, otherPort, _ := strings.Cut(redisconn.Addr(other), ":")
	do(w.client, "REPLICAOF", otherHost, otherPort)
	close(g.open)
	testenv.Eventually(t, time.Minute, "Redis rejects the calls of the worker", func() bool { return m.calls.Load() >= 3 })
	testenv.Eventually(t, time.Minute, "the old master is a replica", func() bool {
		return strings.Contains(w.client.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	if sold := w.sold(); sold >= n {
		t.Fatalf("all %d orders are rows already: the failover was too late to test anything", sold)
	}
	do(w.client, "REPLICAOF", "NO", "ONE")
	w.awaitRows(n)
	for _, key := range []string{w.shard.Attempts(), w.shard.Crashes(), w.shard.Dead().Letters()} {
		if held := w.client.HGetAll(t.Context(), key).Val(); len(held) > 0 {
			t.Errorf("%s holds %v", key, held)
		}
	}
}

// extended is a queue that reports every extended lease.
type extended struct {
	*queue.List
	each func()
}

func (e extended) Extend(ctx context.Context, id string) (bool, error) {
	lost, err := e.List.Extend(ctx, id)
	if err == nil && !lost {
		e.each()
	}
	return lost, err
}

// A batch takes eight times as long as its lease. The test advances Redis's clock only after an extension, so the lease
// cannot expire on a slow machine.
func TestLeaseShorterThanItsWriteIsKept(t *testing.T) {
	const lease, times = 300 * time.Millisecond, 8
	m := miniredis.RunT(t)
	client := testenv.NewClient(m.Addr())
	t.Cleanup(func() { _ = client.Close() })
	now := time.Now()
	m.SetTime(now)
	list := queue.NewList(client, 0, queue.Config{Lease: lease})
	if err := list.Push(t.Context(), orders(3)...); err != nil {
		t.Fatal(err)
	}
	renewals := make(chan struct{}, 1)
	var count, writes atomic.Int64
	q := extended{list, func() {
		now = now.Add(lease - time.Millisecond)
		m.SetTime(now)
		if n, err := list.Reclaim(t.Context(), 10); n != 0 || err != nil {
			t.Errorf("after %d renewals a watcher took %d leases, %v", count.Load(), n, err)
		}
		if count.Add(1) == times {
			close(renewals)
		}
	}}
	counts := &trouble{}
	stop := testenv.Run(t, worker.New(q, storeFunc(func(ctx context.Context, _ []sale.Order) error {
		writes.Add(1)
		select {
		case <-renewals:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}), config(counts)).Run)
	testenv.Eventually(t, time.Minute, "the batch is written and acknowledged", func() bool {
		s, err := list.Stats(t.Context())
		return err == nil && writes.Load() > 0 && s == queue.Stats{}
	})
	stop()
	if writes.Load() != 1 || counts.lost.Load() != 0 || count.Load() < times {
		t.Errorf("%d writes, %d lost leases, %d renewals", writes.Load(), counts.lost.Load(), count.Load())
	}
}

// An order id that is a row arrives again with another buyer. The row is unchanged, the second order becomes a dead
// letter with the reason, and the other orders of the batch become rows.
func TestForeignOrderIDIsReportedAndNeverOverwrites(t *testing.T) {
	for name, databaseURL := range map[string]string{
		"sqlite": storetest.SQLite(t), "postgres": storetest.Postgres(t),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorlds(t)()
			store := storetest.Open(t, databaseURL)
			w.store = store
			w.create()
			mine := order(1)
			mine.SaleID = w.saleID
			if err := store.Write(t.Context(), []sale.Order{mine}); err != nil {
				t.Fatal(err)
			}
			theirs := mine
			theirs.Buyer, theirs.Serial = "eve", 99
			if err := w.list.Push(t.Context(), theirs); err != nil {
				t.Fatal(err)
			}
			w.pushGood(2, 5)
			_, stop := w.run(store)
			testenv.Eventually(t, time.Minute, "all orders are settled", func() bool {
				s, err := w.list.Stats(t.Context())
				return err == nil && s.Ready+s.Delayed+s.Leased == 0 && s.Dead == 1 && w.sold() == 5
			})
			stop()
			letter, err := w.list.DeadLetter(t.Context(), mine.ID)
			if err != nil || letter.Message.Buyer != "eve" || !strings.Contains(letter.Reason, "belongs to ") {
				t.Errorf("the letter is %+v, %v", letter, err)
			}
			if got, err := store.Order(t.Context(), mine.ID); err != nil || got.Buyer != mine.Buyer ||
				got.Serial != mine.Serial {
				t.Errorf("the row is %+v, %v", got, err)
			}
			if _, err := store.Order(t.Context(), order(5).ID); errors.Is(err, sale.ErrNotFound) {
				t.Errorf("another order of the batch is missing: %v", err)
			}
		})
	}
}
