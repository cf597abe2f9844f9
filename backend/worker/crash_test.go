package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

var errCrashed = errors.New("this worker has crashed")

// crashing is the queue and the store of one worker. At its nth call the worker crashes: the call is not executed, or
// its reply is lost. All later calls fail.
type crashing struct {
	*queue.List
	store *store.Store
	kill  context.CancelFunc

	mu        sync.Mutex
	nth       int // 0: never
	before    bool
	calls     int
	crashed   bool
	crashedAt string // the call at which it crashed
}

func (m *crashing) boundary(call string, do func() error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed {
		return errCrashed
	}
	m.calls++
	if m.calls != m.nth {
		return do()
	}
	if !m.before {
		_ = do()
	}
	m.crashed, m.crashedAt = true, call
	m.kill()
	return errCrashed
}

func (m *crashing) TakeAs(ctx context.Context, id string, limit int, ack string) (b queue.Batch, lost bool, err error) {
	err = m.boundary("take", func() (err error) { b, lost, err = m.List.TakeAs(ctx, id, limit, ack); return err })
	if err != nil {
		return queue.Batch{}, false, err
	}
	return b, lost, nil
}

func (m *crashing) Ack(ctx context.Context, id string, f ...queue.Failure) (lost bool, err error) {
	err = m.boundary("ack", func() (err error) { lost, err = m.List.Ack(ctx, id, f...); return err })
	return lost, err
}

func (m *crashing) Release(ctx context.Context, id string) (lost bool, err error) {
	err = m.boundary("release", func() (err error) { lost, err = m.List.Release(ctx, id); return err })
	return lost, err
}

func (m *crashing) Write(ctx context.Context, orders []sale.Order) error {
	return m.boundary("write", func() error { return m.store.Write(ctx, orders) })
}

// world is one shard of a real Redis and one sale in a real order store.
type world struct {
	*testing.T
	client redisconn.Client
	shard  keyspace.Shard
	list   *queue.List
	store  *store.Store
	saleID string
}

func newWorlds(t *testing.T) func() world {
	client := testenv.StartRedis(t).Client()
	store := storetest.Open(t, storetest.SQLite(t))
	n := 0
	return func() world {
		n++
		w := world{T: t, client: client, shard: keyspace.Shard(n), store: store, saleID: fmt.Sprintf("drop-%d", n)}
		w.list = queue.NewList(client, w.shard, queue.Config{Lease: time.Hour, MaxCrashes: 3})
		w.create()
		return w
	}
}

// create makes the sale in the world's store.
func (w world) create() {
	w.Helper()
	_, err := w.store.CreateSale(w.Context(), sale.Sale{
		ID: w.saleID, Title: "A drop", Price: sale.Price{Amount: 100, Currency: "EUR"}, Stock: 1000, PerBuyer: 1,
		OpensAt: time.Now().Add(-time.Hour), Switch: sale.On,
	})
	if err != nil {
		w.Fatal(err)
	}
}

// push puts n orders on the queue; the one in the middle names a sale that does not exist.
func (w world) push(n int) (poison sale.OrderID) {
	w.Helper()
	for i := 1; i <= n; i++ {
		o := order(i)
		o.ID = sale.NewOrderID(time.Now(), uint32(int(w.shard)<<16+i))
		o.SaleID = w.saleID
		if i == n/2 {
			o.SaleID, poison = "nosuch", o.ID
		}
		if err := w.list.Push(w.Context(), o); err != nil {
			w.Fatal(err)
		}
	}
	return poison
}

func (w world) expireLeases() {
	for _, id := range w.client.ZRange(w.Context(), w.shard.Leases(), 0, -1).Val() {
		w.client.ZIncrBy(w.Context(), w.shard.Leases(), -float64(2*time.Hour/time.Millisecond), id)
	}
}

func (w world) stats() queue.Stats {
	w.Helper()
	s, err := w.list.Stats(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func (w world) sold() int64 {
	w.Helper()
	_, sold, err := w.store.Sale(w.Context(), w.saleID)
	if err != nil {
		w.Fatal(err)
	}
	return sold
}

func config(m worker.Metrics) worker.Config {
	return worker.Config{
		Concurrency: 1, Batch: 6, Idle: 5 * time.Millisecond, MaxBackoff: time.Millisecond, Metrics: m,
		Log: slog.New(slog.DiscardHandler),
	}
}

// A worker crashes before and after each of its calls, and another one starts. In every case each order is exactly one
// row, and the rejected order is one dead letter.
func TestWorkerCrashAtEveryCallLosesNothing(t *testing.T) {
	newWorld := newWorlds(t)
	crashedAt := map[string]int{}
	for nth := 1; ; nth++ {
		survived := false
		for _, before := range []bool{true, false} {
			survived = crashOnce(t, newWorld(), nth, before, crashedAt)
		}
		if survived {
			break
		}
	}
	for _, call := range []string{"take", "write", "ack"} {
		if crashedAt[call] == 0 {
			t.Errorf("no worker crashed at %s: %v", call, crashedAt)
		}
	}
}

func crashOnce(t *testing.T, w world, nth int, before bool, crashedAt map[string]int) (survived bool) {
	const n = 20
	poison := w.push(n)
	done := func() bool { s := w.stats(); return s.Ready+s.Delayed+s.Leased == 0 }

	ctx, kill := context.WithCancel(t.Context())
	first := &crashing{List: w.list, store: w.store, kill: kill, nth: nth, before: before}
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = worker.New(first, first, config(nil)).Run(ctx)
	}()
	testenv.Eventually(t, time.Minute, "the first worker has crashed or is done",
		func() bool { return ctx.Err() != nil || done() })
	kill()
	<-ran
	survived = first.crashedAt == ""
	crashedAt[first.crashedAt]++

	w.expireLeases()
	second := &crashing{List: w.list, store: w.store}
	stop := testenv.Run(t, worker.New(second, second, config(nil)).Run)
	story := fmt.Sprintf("worker crashed at call %d (%s, executed: %v)", nth, first.crashedAt, !before)
	testenv.Eventually(t, time.Minute, story+", and another one finished its work", done)
	stop()

	if sold := w.sold(); sold != n-1 {
		t.Errorf("%s: %d orders are sold, want %d", story, sold, n-1)
	}
	if s := w.stats(); s != (queue.Stats{Dead: 1}) {
		t.Errorf("%s: the queue is left with %+v", story, s)
	}
	if d, err := w.list.DeadLetter(t.Context(), poison); err != nil || len(d.History) != 1 {
		t.Errorf("%s: the dead letter is %+v, %v", story, d, err)
	}
	return survived
}

// A worker is suspended in the middle of its write until another one has written the batch.
func TestWorkerPausedPastItsLeaseSellsNothingTwice(t *testing.T) {
	w := newWorlds(t)()
	const n = 6
	w.push(n)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	asleep, wake := make(chan struct{}), make(chan struct{})
	m := &counts{}
	var all sync.WaitGroup
	once := sync.OnceFunc(func() { close(asleep); <-wake })
	run := func(s worker.Store, cfg worker.Config) {
		all.Go(func() { _ = worker.New(w.list, s, cfg).Run(ctx) })
	}
	run(storeFunc(func(ctx context.Context, o []sale.Order) error { once(); return w.store.Write(ctx, o) }), config(m))
	<-asleep
	w.expireLeases()
	run(w.store, config(nil))
	testenv.Eventually(t, time.Minute, "the second worker wrote the batch",
		func() bool { return w.stats() == queue.Stats{Dead: 1} })
	close(wake)
	testenv.Eventually(t, time.Minute, "the first worker noticed that its lease was lost", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.lost == 1
	})
	stop()
	all.Wait()
	if sold := w.sold(); sold != n-1 {
		t.Errorf("%d orders are sold, want %d", sold, n-1)
	}
	if s := w.stats(); s != (queue.Stats{Dead: 1}) {
		t.Errorf("the queue is left with %+v", s)
	}
}
