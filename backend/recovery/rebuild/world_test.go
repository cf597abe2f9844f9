package rebuild_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/admission/admissiontest"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

const shards = 1

var space = keyspace.Space{Shards: shards}

// world is a Redis that can lose data, a database, and a process with a guard, an Admitter, a journal and a Rebuilder.
type world struct {
	t       *testing.T
	ctx     context.Context
	redis   *testenv.Redis
	url     string // of the database
	store   *database
	guards  *guard.Shards
	guard   *guard.Guard // of the only shard
	stock   *admission.Stock
	admit   *admission.Admitter
	queues  []*queue.List
	journal *journal.Journal
	writer  *rebuild.JournalWriter
	log     testenv.Buffer // of the writer
	paused  map[string]string
	rebuild *rebuild.Rebuilder
	stopAt  string // step at which the rebuild stops; "" for none
	steps   []string
}

// database is the order store and the registry of journals.
type database struct {
	*store.Store
	*journal.Registry
}

func openDatabase(t testing.TB, databaseURL string) *database {
	db := storetest.Open(t, databaseURL)
	return &database{db, journal.NewRegistry(db.DB)}
}

var errStopped = errors.New("the process was killed")

func openGuards(tb testing.TB, url string, space keyspace.Space) *guard.Shards {
	tb.Helper()
	server, err := redisconn.NewServer(url)
	if err != nil {
		tb.Fatal(err)
	}
	g := guard.Open(guard.Config{Server: server, Space: space, Log: slog.New(slog.DiscardHandler)})
	tb.Cleanup(func() { _ = g.Close() })
	return g
}

// newRebuilder returns a Rebuilder. By default it does not log, does not wait for journals and does not pause sales.
func newRebuilder(tb testing.TB, cfg rebuild.Config) *rebuild.Rebuilder {
	tb.Helper()
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.JournalWait == 0 {
		cfg.JournalWait = time.Millisecond
	}
	if cfg.Pause == nil {
		cfg.Pause = func(context.Context, string, string) error { return nil }
	}
	r, err := rebuild.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// newWriter returns a JournalWriter. By default it does not log.
func newWriter(cfg rebuild.JournalWriterConfig) *rebuild.JournalWriter {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return rebuild.NewJournalWriter(cfg)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	redisconn.Quiet(slog.New(slog.DiscardHandler))
	w := &world{t: t, ctx: context.Background(), redis: testenv.StartRedis(t), url: storetest.SQLite(t)}
	w.store = openDatabase(t, w.url)
	w.start()
	w.run()
	return w
}

// start starts a new process.
func (w *world) start() {
	w.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	var err error
	w.guards = openGuards(w.t, w.redis.URL, space)
	w.guard = w.guards.Of(0)
	client := w.guard.Client()
	w.stock = admission.NewStock(admission.StockConfig{Client: client, Space: space, Deployment: w.guards.Deployment})
	w.queues = nil
	for _, shard := range space.All() {
		w.queues = append(w.queues, queue.NewList(client, shard, queue.Config{Deployment: w.guards.Deployment}))
	}
	if w.journal != nil {
		_ = w.journal.Close()
	}
	if w.journal, err = journal.Open(w.redis.Dir+"/journal", journal.Config{Log: quiet}); err != nil {
		w.t.Fatal(err)
	}
	w.writer = newWriter(rebuild.JournalWriterConfig{
		Journal: w.journal, Store: w.store, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
		Restorer: rebuild.NewRestorer(w.guard, w.guard.Raw(), 0, w.store),
	})
	w.admit = w.admitter()
	w.paused = map[string]string{}
	w.rebuild = newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space,
		Pause: func(ctx context.Context, id, reason string) error {
			w.paused[id] = reason
			_, err := w.store.SetSwitch(store.WithReason(ctx, reason), id, sale.Paused)
			return err
		},
		Step: func(name string) error {
			w.steps = append(w.steps, name)
			if name == w.stopAt {
				return errStopped
			}
			return nil
		},
	})
}

// admitter returns an Admitter that records orders in the journal.
func (w *world) admitter(change ...func(*admission.Config)) *admission.Admitter {
	record := func(c *admission.Config) { c.Recorder = rebuild.JournalWriters{w.writer} }
	return admissiontest.NewAdmitter(w.t, w.guard.Client(), space, append(change, record)...)
}

// runWithoutJournal rebuilds and does not restore the journal.
func (w *world) runWithoutJournal(only ...string) {
	w.t.Helper()
	if err := w.rebuild.Run(w.ctx, only...); err != nil {
		w.t.Fatal(err)
	}
	w.check()
}

// run rebuilds and restores the journal.
func (w *world) run(only ...string) {
	w.t.Helper()
	w.runWithoutJournal(only...)
	if why, ok := w.guard.Verified(); !ok {
		w.t.Fatalf("not verified after the rebuild: %s", why)
	}
	w.restoreJournal()
}

func (w *world) restoreJournal() {
	w.t.Helper()
	if _, err := w.writer.Restore(w.ctx); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) check() {
	w.t.Helper()
	if err := w.guard.Check(w.ctx, w.store); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(id string, stock int64, perBuyer int) {
	w.t.Helper()
	s := storetest.Sale(id, stock)
	s.PerBuyer = perBuyer
	s, err := w.store.CreateSale(w.ctx, s)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.stock.Load(
		w.ctx,
		s,
		func(context.Context, spread.Part, func(sale.Order) error) error { return nil },
	); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) try(saleID, buyer string) (admission.Decision, error) {
	return w.admit.Admit(
		w.ctx,
		admission.Request{
			SaleID: saleID, Buyer: buyer, Key: strconv.FormatInt(time.Now().UnixNano(), 36), KeyTTL: time.Minute,
		},
	)
}

func (w *world) buy(saleID, buyer string) sale.OrderID {
	w.t.Helper()
	d, err := w.try(saleID, buyer)
	if err != nil || d.Outcome != sale.Accepted {
		w.t.Fatalf("buyer %s, sale %s: %v, %v", buyer, saleID, d.Outcome, err)
	}
	return d.OrderID
}

func (w *world) shard(saleID string) *queue.List { return w.queues[space.ShardOf(saleID)] }

func (w *world) take(saleID string, n int) queue.Batch {
	w.t.Helper()
	b, _, err := queuetest.Take(w.ctx, w.shard(saleID), n, "")
	if err != nil || len(b.Messages) != n {
		w.t.Fatalf("Take returned %d of %d messages: %v", len(b.Messages), n, err)
	}
	return b
}

// write writes n orders to SQL.
func (w *world) write(saleID string, n int) {
	w.t.Helper()
	b := w.take(saleID, n)
	if err := w.store.Write(w.ctx, b.Messages); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.shard(saleID).Ack(w.ctx, b.ID); err != nil {
		w.t.Fatal(err)
	}
}

// kill makes the next order a dead letter.
func (w *world) kill(saleID string) sale.OrderID {
	w.t.Helper()
	b := w.take(saleID, 1)
	failure := queue.Failure{ID: b.Messages[0].ID, Reason: "no", Permanent: true}
	if _, err := w.shard(saleID).Ack(w.ctx, b.ID, failure); err != nil {
		w.t.Fatal(err)
	}
	return b.Messages[0].ID
}

// drain writes all queued orders to SQL.
func (w *world) drain() {
	w.t.Helper()
	for _, q := range w.queues {
		for {
			b, _, err := queuetest.Take(w.ctx, q, 100, "")
			if err != nil {
				w.t.Fatal(err)
			}
			if len(b.Messages) == 0 {
				break
			}
			if err := w.store.Write(w.ctx, b.Messages); err != nil {
				w.t.Fatal(err)
			}
			if _, err := q.Ack(w.ctx, b.ID); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

func (w *world) audit(saleID string) audit.Report {
	w.t.Helper()
	r, err := audit.New(w.stock, w.store).Audit(w.ctx, saleID)
	if err != nil {
		w.t.Fatal(err)
	}
	if !r.Balanced {
		w.t.Fatalf("sale %s: %+v", saleID, r)
	}
	return r
}

func (w *world) want(saleID string, left, queued, ordered, dead, unbacked int64) {
	w.t.Helper()
	r := w.audit(saleID)
	if got := r.Ready + r.Delayed + r.Leased; r.Left != left || got != queued || r.Ordered != ordered || r.Dead != dead ||
		r.Unbacked != unbacked {
		w.t.Fatalf("sale %s: %d left, %d queued, %d ordered, %d dead, %d unbacked; want %d, %d, %d, %d, %d", saleID,
			r.Left, got, r.Ordered, r.Dead, r.Unbacked, left, queued, ordered, dead, unbacked)
	}
}

// copyOf returns all data in Redis. put restores it, like a Redis that returns with older data.
func (w *world) copyOf() map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, key := range w.raw().Keys(w.ctx, "*").Val() {
		all[key] = w.raw().Dump(w.ctx, key).Val()
	}
	return all
}

func (w *world) put(older map[string]string) {
	w.t.Helper()
	w.raw().FlushAll(w.ctx)
	for _, key := range slices.Sorted(maps.Keys(older)) {
		if err := w.raw().Restore(w.ctx, key, 0, older[key]).Err(); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, shard := range space.All() { // another server
		w.raw().HSet(w.ctx, shard.Guard(), "run_id", "previous")
	}
}

func (w *world) raw() redisconn.Client { return w.guard.Raw() }

// fill creates a sale with orders in every state: rows, a row that is still leased, leased, delayed, ready, dead.
func (w *world) fill(saleID string) {
	w.t.Helper()
	w.create(saleID, 30, 2)
	for i := range 8 {
		w.buy(saleID, fmt.Sprint("b", i))
	}
	w.buy(saleID, "b0") // a second order
	w.write(saleID, 3)
	w.kill(saleID)
	b := w.take(saleID, 1)
	if err := w.store.Write(w.ctx, b.Messages); err != nil {
		w.t.Fatal(err)
	}
	w.take(saleID, 1)
	b = w.take(saleID, 1)
	if _, err := w.shard(saleID).Ack(w.ctx, b.ID, queue.Failure{ID: b.Messages[0].ID, Reason: "later"}); err != nil {
		w.t.Fatal(err)
	}
}

// soldAgain sells the only unit of a sale, which Redis loses before the journal is restored, and sells it again. It
// returns the first order, which is a dead letter without a unit.
func (w *world) soldAgain() (first sale.OrderID) {
	w.t.Helper()
	w.create("s", 1, 1)
	first = w.buy("s", "ann")
	w.raw().FlushAll(w.ctx)
	w.runWithoutJournal()
	w.buy("s", "bob")
	w.restoreJournal()
	w.want("s", 0, 1, 0, 0, 1)
	return first
}

// restock adds units to a sale, in SQL and in Redis.
func (w *world) restock(saleID string, add int64) {
	w.t.Helper()
	restocked, err := w.store.Restock(w.ctx, saleID, add, "")
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.stock.Update(w.ctx, restocked); err != nil {
		w.t.Fatal(err)
	}
}

// returnUnit sells a unit, cancels the order and returns the unit.
func (w *world) returnUnit(saleID, buyer string) {
	w.t.Helper()
	id := w.buy(saleID, buyer)
	w.drain()
	o, _, err := w.store.CancelOrder(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	numbers, err := w.stock.ReturnUnits(w.ctx, spread.Part{SaleID: saleID}, []sale.Order{o})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.store.MarkReturned(w.ctx, []store.Return{{ID: id, Number: numbers[0]}}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.stock.ConfirmReturns(w.ctx, spread.Part{SaleID: saleID}, []sale.Order{o}); err != nil {
		w.t.Fatal(err)
	}
}
