package events_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/events"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

var space keyspace.Space

// patience bounds the wait for an expected event on a busy machine.
const patience = 30 * time.Second

// world is one SQL store and one empty Redis.
type world struct {
	*testing.T
	sql   *store.Store
	store *events.Store
	url   string // of the store
	redis string // its URL
	raw   redisconn.Client
}

// on runs a test on the embedded Redis and on a real one.
func on(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	t.Run("miniredis", func(t *testing.T) { t.Parallel(); test(newWorld(t, "redis://"+miniredis.RunT(t).Addr())) })
	t.Run("redis", func(t *testing.T) { t.Parallel(); test(newWorld(t, testenv.StartRedis(t).URL)) })
}

func newWorld(t *testing.T, redisURL string) *world {
	w := &world{T: t, url: storetest.SQLite(t), redis: redisURL}
	w.sql = storetest.Open(t, w.url)
	w.store = events.NewStore(w.sql.DB)
	if _, err := w.sql.CreateSale(t.Context(), storetest.WithHold("s", 100_000, time.Hour)); err != nil {
		t.Fatal(err)
	}
	w.raw = w.client()
	return w
}

// client opens Redis as the program does.
func (w *world) client() redisconn.Client {
	return testenv.OpenPatient(w, w.redis)
}

// buy makes n orders rows, in batches of 7.
func (w *world) buy(n int) []sale.Order {
	w.Helper()
	orders := storetest.Orders("s", n)
	for batch := range slices.Chunk(orders, 7) {
		if err := w.sql.Write(w.Context(), batch); err != nil {
			w.Fatal(err)
		}
	}
	return orders
}

func (w *world) cancel(orders ...sale.Order) {
	w.Helper()
	for _, o := range orders {
		if _, _, err := w.sql.CancelOrder(w.Context(), o.ID); err != nil {
			w.Fatal(err)
		}
	}
}

func created(orders []sale.Order) []string { return changes(orders, sale.StatusCreated) }

func cancelled(orders []sale.Order) []string { return changes(orders, sale.StatusCancelled) }

// changes returns the ids of the events of the orders' changes to a status.
func changes(orders []sale.Order, status sale.Status) []string {
	ids := make([]string, len(orders))
	for i, o := range orders {
		ids[i] = events.ID(o.ID, status)
	}
	return ids
}

// stream returns the ids of the events in the stream, and checks that positions ascend.
func (w *world) stream() []string {
	w.Helper()
	entries, err := w.raw.XRange(context.Background(), space.Events(), "-", "+").Result()
	if err != nil {
		w.Fatal(err)
	}
	var ids []string
	for _, e := range entries {
		body, _ := e.Values["event"].(string)
		d, err := events.Decode(body)
		if err != nil {
			w.Fatalf("%v: %v", e, err)
		}
		ids = append(ids, d.ID)
	}
	return ids
}

func (w *world) wantStream(want []string) {
	w.Helper()
	got := w.stream()
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		w.Fatalf("the stream has %d events, want %d:\n%v\n%v", len(got), len(want), got, want)
	}
}

func (w *world) relay(cfg events.RelayConfig) *events.Relay {
	cfg.Log = quiet
	if cfg.Poll == 0 {
		cfg.Poll = 20 * time.Millisecond
	}
	return events.NewRelay(w.raw, space, w.store, cfg)
}

var quiet = slog.New(slog.DiscardHandler)

// drain runs a relay until no change is left.
func (w *world) drain(r *events.Relay) {
	w.Helper()
	for {
		n, err := r.RunOnce(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if n == 0 {
			return
		}
	}
}

// start runs something until the test ends or stop is called.
func (w *world) start(run func(ctx context.Context) error) (stop func()) {
	return testenv.Run(w, run)
}

// sink is a handler that records its events.
type sink struct {
	mu     sync.Mutex
	counts map[string]int
	most   map[string]int64 // deliveries
	fail   func(e events.Event) error
	latest time.Time
}

func newSink() *sink { return &sink{counts: map[string]int{}, most: map[string]int64{}} }

func (s *sink) Handle(_ context.Context, batch []events.Event) error {
	for _, e := range batch {
		if s.fail != nil {
			if err := s.fail(e); err != nil {
				return err
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range batch {
		s.counts[e.ID]++
		s.most[e.ID] = max(s.most[e.ID], e.Deliveries)
	}
	s.latest = time.Now()
	return nil
}

func (s *sink) count(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[id]
}

// has reports whether exactly these events were handled.
func (s *sink) has(want []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range want {
		if s.counts[id] == 0 {
			return false
		}
	}
	return len(s.counts) == len(want)
}

// twice returns the ids of events that were handled more than once.
func (s *sink) twice() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, n := range s.counts {
		if n > 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

func (w *world) consumer(client redisconn.Client, group string, h events.Handler, cfg events.Config) *events.Consumer {
	w.Helper()
	cfg.Log = quiet
	c, err := events.New(client, space, w.store, group, h, cfg)
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func (w *world) admin() *events.Admin { return events.NewAdmin(w.raw, space, w.store) }

// pending returns the events that were delivered to the group and are not acknowledged.
func (w *world) pending(group string) []redis.XPendingExt {
	w.Helper()
	all, err := w.raw.XPendingExt(context.Background(), &redis.XPendingExtArgs{
		Stream: space.Events(), Group: group, Start: "-", End: "+", Count: 1000,
	}).Result()
	if err != nil {
		w.Fatal(err)
	}
	return all
}

// age sets the idle time of the pending events of a group.
func (w *world) age(group string, idle time.Duration) {
	w.Helper()
	for _, p := range w.pending(group) {
		args := []any{
			"XCLAIM", space.Events(), group, p.Consumer, 0, p.ID,
			"IDLE", idle.Milliseconds(), "RETRYCOUNT", p.RetryCount, "JUSTID",
		}
		if err := w.raw.Do(context.Background(), args...).Err(); err != nil {
			w.Fatal(err)
		}
	}
}

// settled waits until a group has neither pending nor undelivered events.
func (w *world) settled(group string) {
	w.Helper()
	testenv.Eventually(w, patience, "group "+group+" is done", func() bool {
		groups, err := w.raw.XInfoGroups(w.Context(), space.Events()).Result()
		if err != nil {
			return false
		}
		newest, err := w.raw.XRevRangeN(w.Context(), space.Events(), "+", "-", 1).Result()
		if err != nil || len(newest) == 0 {
			return false
		}
		for _, g := range groups {
			if g.Name == group {
				return g.Pending == 0 && g.LastDeliveredID == newest[0].ID
			}
		}
		return false
	})
}

var errKilled = errors.New("this process has crashed")

// crashing injects a crash of one process. At its nth call to Redis or SQL the process crashes: the call is not
// executed, or its reply is lost. All later calls fail.
type crashing struct {
	nth    int // 0: never
	before bool

	mu      sync.Mutex
	calls   int
	crashed bool
	kill    context.CancelFunc // may be nil
}

func (m *crashing) boundary(do func() error) error {
	m.mu.Lock()
	if m.crashed {
		m.mu.Unlock()
		return errKilled
	}
	m.calls++
	now := m.calls == m.nth
	if now {
		m.crashed = true
		if m.kill != nil {
			defer m.kill()
		}
	}
	m.mu.Unlock()
	if !now {
		return do()
	}
	if !m.before {
		_ = do()
	}
	return errKilled
}

func (m *crashing) hasCrashed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.crashed
}

func (m *crashing) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (m *crashing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := m.boundary(func() error { return next(ctx, cmd) })
		if errors.Is(err, errKilled) {
			cmd.SetErr(err)
		}
		return err
	}
}

func (m *crashing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return m.boundary(func() error { return next(ctx, cmds) })
	}
}

// crashingConsumer returns a consumer of group g in the process m. After the crash of m it handles no event.
func (w *world) crashingConsumer(m *crashing, handle events.Handler, config events.Config) *events.Consumer {
	w.Helper()
	client := w.client()
	client.AddHook(m)
	config.Drain, config.Log = time.Millisecond, quiet
	alive := func(ctx context.Context, batch []events.Event) error {
		if m.hasCrashed() {
			return errKilled
		}
		return handle(ctx, batch)
	}
	c, err := events.New(client, space, crashingStore{w.store, m}, "g", alive, config)
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// crashingStore is the SQL store of a crashing process.
type crashingStore struct {
	*events.Store
	m *crashing
}

func (s crashingStore) Changes(ctx context.Context, after int64, limit int) (c []events.Event, err error) {
	err = s.m.boundary(func() error { c, err = s.Store.Changes(ctx, after, limit); return err })
	return c, err
}

func (s crashingStore) DeleteChanges(ctx context.Context, upTo int64) error {
	return s.m.boundary(func() error { return s.Store.DeleteChanges(ctx, upTo) })
}

func (s crashingStore) DropChanges(ctx context.Context, keep int, inUse func(context.Context) (bool, error)) error {
	return s.m.boundary(func() error { return s.Store.DropChanges(ctx, keep, inUse) })
}

func (s crashingStore) Groups(ctx context.Context) (g []events.Group, err error) {
	err = s.m.boundary(func() error { g, err = s.Store.Groups(ctx); return err })
	return g, err
}

func (s crashingStore) AddGroup(ctx context.Context, name string, fromNow bool) (g events.Group, err error) {
	err = s.m.boundary(func() error { g, err = s.Store.AddGroup(ctx, name, fromNow); return err })
	return g, err
}

func (s crashingStore) Group(ctx context.Context, name string) (g events.Group, err error) {
	err = s.m.boundary(func() error { g, err = s.Store.Group(ctx, name); return err })
	return g, err
}

func (s crashingStore) AddDeadLetter(ctx context.Context, l events.DeadLetter) error {
	return s.m.boundary(func() error { return s.Store.AddDeadLetter(ctx, l) })
}

func (s crashingStore) RemoveDeadLetter(ctx context.Context, group, id string) error {
	return s.m.boundary(func() error { return s.Store.RemoveDeadLetter(ctx, group, id) })
}

func (s crashingStore) LeaseRetry(
	ctx context.Context, group string, lease time.Duration,
) (l *events.DeadLetter, err error) {
	err = s.m.boundary(func() error { l, err = s.Store.LeaseRetry(ctx, group, lease); return err })
	return l, err
}

func (s crashingStore) ReleaseRetry(ctx context.Context, l events.DeadLetter) error {
	return s.m.boundary(func() error { return s.Store.ReleaseRetry(ctx, l) })
}

func (s crashingStore) FailRetry(ctx context.Context, l events.DeadLetter) error {
	return s.m.boundary(func() error { return s.Store.FailRetry(ctx, l) })
}
