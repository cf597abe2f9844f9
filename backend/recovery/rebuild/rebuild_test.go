package rebuild_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
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

func TestRebuildOfAnIntactRedisChangesNothing(t *testing.T) {
	w := newWorld(t)
	w.fill("s")
	w.fill("other")
	// On a slow machine the second fill may take the order of the first that is to be retried.
	before, other := w.audit("s"), w.audit("other")
	queued := before.Ready + before.Delayed + before.Leased
	w.run()
	w.want("s", before.Left, queued, before.Ordered, before.Dead, 0)
	for _, s := range w.rebuild.Status().Sales {
		if s.Requeued != 0 || s.Unbacked != 0 || s.Corrected != 0 || !s.Balanced {
			t.Errorf("the rebuild changed an intact Redis: %+v", s)
		}
	}
	w.drain()
	w.want("s", before.Left, 0, before.Ordered+queued, before.Dead, 0)
	w.want("other", other.Left, 0, other.Ordered+other.Ready+other.Delayed+other.Leased, other.Dead, 0)
	if d, err := w.try("s", "b0"); err != nil || d.Outcome != sale.AlreadyBought {
		t.Errorf("a buyer with two orders: %v, %v", d.Outcome, err)
	}
	if d, err := w.try("s", "b1"); err != nil || d.Outcome != sale.Accepted {
		t.Errorf("a buyer with one of two orders: %v, %v", d.Outcome, err)
	}
	if len(w.paused) > 0 {
		t.Errorf("paused sales: %v", w.paused)
	}
}

func TestRebuildOfAnEmptyRedisRestoresTheJournal(t *testing.T) {
	w := newWorld(t)
	w.fill("s")
	w.raw().FlushAll(w.ctx)
	w.check()
	if _, err := w.try("s", "late"); !errors.Is(err, sale.ErrUnavailable) {
		t.Fatalf("purchase in an emptied Redis: %v", err)
	}
	w.run()
	w.want("s", 21, 5, 4, 0, 0) // the dead order is queued again without its failure
	w.drain()
	w.want("s", 21, 0, 9, 0, 0)
	w.run()
	w.want("s", 21, 0, 9, 0, 0)
}

func TestRebuildOfAnEmptyRedisWithoutJournalKeepsTheRows(t *testing.T) {
	w := newWorld(t)
	w.fill("s")
	w.raw().FlushAll(w.ctx)
	w.runWithoutJournal()
	w.want("s", 26, 0, 4, 0, 0)
	if d, err := w.try("s", "b7"); err != nil || d.Outcome != sale.Accepted {
		t.Errorf("buyer of a lost order: %v, %v", d.Outcome, err)
	}
}

// Redis returns with older data. Later orders are rows, leased messages, and records in the journal.
func TestRebuildOfAnOlderRedis(t *testing.T) {
	w := newWorld(t)
	w.create("s", 10, 1)
	for i := range 3 {
		w.buy("s", fmt.Sprint("early", i))
	}
	w.write("s", 1)
	older := w.copyOf()
	for i := range 5 {
		w.buy("s", fmt.Sprint("late", i))
	}
	w.write("s", 4) // early1, early2, late0, late1
	w.put(older)
	w.check()
	if _, err := w.try("s", "late3"); !errors.Is(err, sale.ErrUnavailable) {
		t.Fatalf("purchase in an older Redis: %v", err)
	}
	w.run()
	w.want("s", 2, 3, 5, 0, 0)
	w.drain()
	w.want("s", 2, 0, 8, 0, 0)
	for _, buyer := range []string{"early0", "late0", "late4"} {
		if d, err := w.try("s", buyer); err != nil || d.Outcome != sale.AlreadyBought {
			t.Errorf("buyer %s: %v, %v", buyer, d.Outcome, err)
		}
	}
}

// An order that was cancelled after the copy keeps neither its slot nor its message.
func TestRebuildDropsCancelledOrders(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.buy("s", "ann")
	w.buy("s", "bob")
	dead := w.kill("s")
	older := w.copyOf()
	q := w.shard("s")
	letter, err := q.BeginCancel(w.ctx, dead)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.CancelDead(w.ctx, store.DeadOrder{Order: letter.Message}); err != nil {
		t.Fatal(err)
	}
	if err := q.FinishCancel(w.ctx, dead, true); err != nil {
		t.Fatal(err)
	}
	w.want("s", 4, 1, 0, 0, 0)
	w.put(older)
	w.run()
	w.want("s", 4, 1, 0, 0, 0)
	w.buy("s", "ann")
	w.drain()
	w.want("s", 3, 0, 2, 0, 0)
}

// The unit of an order that was cancelled in SQL is returned once, whenever Redis loses its data.
func TestRebuildCountsReturningUnitsOnce(t *testing.T) {
	for name, returned := range map[string]bool{"lost before the return": false, "lost after the return": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 5, 1)
			for _, buyer := range []string{"ann", "bob", "cid"} {
				w.buy("s", buyer)
			}
			id := w.take("s", 1).Messages[0].ID
			w.drain()
			older := w.copyOf()
			if err := w.store.Write(w.ctx, []sale.Order{{ID: id, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1}}); err != nil {
				t.Fatal(err)
			}
			b, _, err := w.store.CancelOrder(w.ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			returnUnit := func(marked bool) {
				numbers, err := w.stock.ReturnUnits(w.ctx, "s", []sale.Order{b})
				if err != nil || len(numbers) != 1 {
					t.Fatal(numbers, err)
				}
				if !marked {
					return
				}
				if err := w.store.MarkReturned(w.ctx, []store.Return{{ID: id, Number: numbers[0]}}); err != nil {
					t.Fatal(err)
				}
				if err := w.stock.ConfirmReturns(w.ctx, "s", []sale.Order{b}); err != nil {
					t.Fatal(err)
				}
			}
			if returned {
				returnUnit(false) // SQL does not have the number
			}
			w.put(older)
			w.run()
			w.want("s", 3, 0, 2, 0, 0)
			returnUnit(true)
			w.want("s", 3, 0, 2, 0, 0)
			w.run()
			w.want("s", 3, 0, 2, 0, 0)
			w.buy("s", "ann")
			w.drain()
			w.want("s", 2, 0, 3, 0, 0)
		})
	}
}

// A slot that was lost while it moved lacks some keys. The messages of a batch without a lease return to the queue.
func TestRebuildFindsBatchesWithoutALease(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.run()
	w.check()
	ann, ben := w.buy("s", "ann"), w.buy("s", "ben")
	b := w.take("s", 1)
	shard := keyspace.Shard(0)
	w.raw().Del(w.ctx, shard.Leases(), shard.Buyers("s"))
	w.run()
	w.check()
	if n := w.raw().Exists(w.ctx, shard.Batch(b.ID)).Val(); n != 0 {
		t.Errorf("the batch is still there")
	}
	w.want("s", 3, 2, 0, 0, 0)
	var queued []sale.OrderID
	for _, o := range w.take("s", 2).Messages {
		queued = append(queued, o.ID)
	}
	if !slices.Equal(queued, []sale.OrderID{ann, ben}) {
		t.Errorf("queued: %v, want %v and %v", queued, ann, ben)
	}
}

// SQL loses a commit after the acknowledgement: only the slot of the order is left.
func TestRebuildQueuesSlotsWithoutRows(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	id := w.buy("s", "ann")
	b := w.take("s", 1)
	if _, err := w.shard("s").Ack(w.ctx, b.ID); err != nil { // the write was lost
		t.Fatal(err)
	}
	w.buy("s", "bob")
	w.run()
	w.want("s", 3, 2, 0, 0, 0)
	if s := w.rebuild.Status().Sales; len(s) != 1 || s[0].Requeued != 1 {
		t.Errorf("%+v", s)
	}
	w.drain()
	if o, err := w.store.Order(w.ctx, id); err != nil || o.Buyer != "ann" {
		t.Errorf("%+v, %v", o, err)
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

// The unit of an order that only the journal has was sold again: the order becomes a dead letter without a unit, and
// can be retried after a restock.
func TestRestoredOrderWithoutUnitBecomesADeadLetter(t *testing.T) {
	w := newWorld(t)
	first := w.soldAgain()
	q := w.shard("s")
	letter, err := q.DeadLetter(w.ctx, first)
	if err != nil || !letter.Unbacked {
		t.Fatalf("%+v, %v", letter, err)
	}
	if err := q.RetryDead(w.ctx, first); !errors.Is(err, sale.ErrConflict) {
		t.Fatalf("retry of an order without a unit: %v", err)
	}
	w.run()
	w.want("s", 0, 1, 0, 0, 1)
	w.restock("s", 1)
	if err := q.RetryDead(w.ctx, first); err != nil {
		t.Fatal(err)
	}
	w.want("s", 0, 2, 0, 0, 0)
	w.drain()
	w.want("s", 0, 0, 2, 0, 0)
	if o, err := w.store.Order(w.ctx, first); err != nil || o.Buyer != "ann" {
		t.Errorf("%+v, %v", o, err)
	}
}

// A dead order without a unit is decided by an admin. A rebuild does not queue it, also if Redis has a slot for it.
func TestRebuildDoesNotQueueSlotsOfDeadOrders(t *testing.T) {
	w := newWorld(t)
	first := w.soldAgain()
	w.restock("s", 1)
	if err := w.raw().HSet(w.ctx, space.ShardOf("s").Buyers("s"), "ann", first.String()).Err(); err != nil {
		t.Fatal(err)
	}
	w.run("s")
	w.want("s", 1, 1, 0, 0, 1)
	if s := w.rebuild.Status().Sales; len(s) != 1 || s[0].Requeued != 0 {
		t.Errorf("%+v", s)
	}
}

// Another order has taken the slot of a dead order. If the limit permits, the dead order gets the next slot.
func TestDeadOrderMovesToAnotherSlot(t *testing.T) {
	for perBuyer, name := range map[int]string{2: "empty slot", 1: "no empty slot"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 5, perBuyer)
			w.buy("s", "ann")
			dead := w.kill("s")
			other := sale.Order{ID: dead + 1, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 2}
			if err := w.store.Write(w.ctx, []sale.Order{other}); err != nil {
				t.Fatal(err)
			}
			w.run("s")
			if perBuyer == 1 {
				w.want("s", 4, 0, 1, 0, 1)
				return
			}
			w.want("s", 3, 0, 1, 1, 0)
			if err := w.shard("s").RetryDead(w.ctx, dead); err != nil {
				t.Fatal(err)
			}
			w.drain()
			w.want("s", 3, 0, 2, 0, 0)
			if o, err := w.store.Order(w.ctx, dead); err != nil || o.Slot != 2 {
				t.Errorf("%+v, %v", o, err)
			}
		})
	}
}

func TestCancelOfAnUnbackedOrderReturnsNoUnit(t *testing.T) {
	w := newWorld(t)
	w.create("s", 1, 1)
	first := w.buy("s", "ann")
	w.raw().FlushAll(w.ctx)
	w.runWithoutJournal()
	w.buy("s", "ann") // the same buyer
	w.restoreJournal()
	w.want("s", 0, 1, 0, 0, 1)
	q := w.shard("s")
	letter, err := q.BeginCancel(w.ctx, first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.CancelDead(w.ctx, store.DeadOrder{Order: letter.Message}); err != nil {
		t.Fatal(err)
	}
	if err := q.FinishCancel(w.ctx, first, true); err != nil {
		t.Fatal(err)
	}
	w.want("s", 0, 1, 0, 0, 0)
	if d, err := w.try("s", "ann"); err != nil || d.Outcome != sale.AlreadyBought {
		t.Errorf("the cancellation released the slot of another order: %v, %v", d.Outcome, err)
	}
}

// A rebuild that is killed before any step is repeated from the start, and counts nothing twice.
func TestRebuildIsKilledAtEveryStep(t *testing.T) {
	w := newWorld(t)
	w.fill("s")
	names := slices.Clone(w.steps)
	older := w.copyOf()
	w.buy("s", "late")
	w.write("s", 2)
	lost := w.copyOf()
	for _, broken := range []map[string]string{older, lost, {}} {
		for _, step := range names {
			w.put(broken)
			w.stopAt = step
			if err := w.rebuild.Run(w.ctx); !errors.Is(err, errStopped) {
				t.Fatalf("%s: %v", step, err)
			}
			w.check()
			if _, err := w.try("s", "meanwhile"); !errors.Is(err, sale.ErrUnavailable) {
				t.Fatalf("purchase after a rebuild was killed before %s: %v", step, err)
			}
			w.stopAt = ""
			w.start()
			w.run()
			r := w.audit("s")
			if r.Left != 20 || r.Ordered != 6 || r.Ready+r.Leased+r.Delayed+r.Dead != 4 {
				t.Fatalf("killed before %s: %+v", step, r)
			}
		}
	}
	w.drain()
	if r := w.audit("s"); r.Ordered+r.Dead != 10 {
		t.Fatalf("%+v", r)
	}
}

// A rebuild is suspended at any step for longer than its lock, and another one runs meanwhile: the first one changes
// nothing more.
func TestSuspendedRebuildIsFenced(t *testing.T) {
	w := newWorld(t)
	w.fill("s")
	for _, step := range slices.Clone(w.steps)[1:] {
		var second map[string]string
		slow := newRebuilder(w.t, rebuild.Config{
			Pinner: w.guards, Store: w.store, Space: space,
			Pause: func(context.Context, string, string) error {
				t.Error("the suspended rebuild paused a sale")
				return nil
			},
			Step: func(name string) error {
				if name == step {
					w.raw().Del(w.ctx, space.All()[0].RebuildLock()) // expired
					w.run()
					w.buy("s", "between "+step)
					second = w.copyOf()
				}
				return nil
			},
		})
		if err := slow.Run(w.ctx); err == nil {
			t.Fatalf("suspended before %s, the rebuild was not fenced", step)
		}
		third := w.copyOf()
		for key, dump := range second {
			if third[key] != dump && key != keyspace.Shard(0).OrderNumbers() {
				t.Fatalf("suspended before %s, the rebuild changed %s", step, key)
			}
		}
		w.check()
		if why, ok := w.guard.Verified(); !ok {
			t.Fatalf("suspended before %s, the rebuild blocked the verified Redis: %s", step, why)
		}
		w.audit("s")
	}
}

// The process of a rebuild notices its begin without a heartbeat, and a caller that waits for its end can use Redis
// immediately.
func TestChangedIsCalledAfterTheBeginAndBeforeTheEnd(t *testing.T) {
	w := newWorld(t)
	var r *rebuild.Rebuilder
	var verified []bool // by call
	r = newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space,
		Changed: func(ctx context.Context, _ keyspace.Shard) {
			if !r.Status().Running {
				t.Error("Status reported the end before Changed was called")
			}
			if err := w.guard.Check(ctx, w.store); err != nil {
				t.Error(err)
			}
			_, ok := w.guard.Verified()
			verified = append(verified, ok)
		},
	})
	if err := r.Run(w.ctx); err != nil || r.Status().Running {
		t.Fatalf("%v, %+v", err, r.Status())
	}
	if why, ok := w.guard.Verified(); !ok || !slices.Equal(verified, []bool{false, true}) {
		t.Errorf("verified at the calls of Changed: %v, at the end: %t: %s", verified, ok, why)
	}
	failing := newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space,
		Step:    func(string) error { return errStopped },
		Changed: func(context.Context, keyspace.Shard) { t.Error("Changed was called without a rebuild") },
	})
	if err := failing.Run(w.ctx); !errors.Is(err, errStopped) {
		t.Error(err)
	}
}

func TestOneRebuildAtATime(t *testing.T) {
	w := newWorld(t)
	other := newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space,
	})
	w.rebuild = newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space,
		Step: func(string) error {
			if err := other.Run(w.ctx); !errors.Is(err, guard.ErrBusy) {
				t.Errorf("a concurrent rebuild: %v", err)
			}
			return nil
		},
	})
	if err := w.rebuild.Run(w.ctx); err != nil {
		t.Fatal(err)
	}
}

func TestRunIfRebuildsOnlyIfNeeded(t *testing.T) {
	w := newWorld(t)
	calls := 0
	needed := func(answer bool) func(context.Context) bool {
		return func(context.Context) bool { calls++; return answer }
	}
	if err := w.rebuild.RunIf(w.ctx, 0, needed(true)); err != nil {
		t.Fatal(err)
	}
	first := w.rebuild.Status()
	if err := w.rebuild.RunIf(w.ctx, 0, needed(false)); err != nil {
		t.Fatal(err)
	}
	if got := w.rebuild.Status(); calls != 2 || first.Fence == 0 || got.Fence != first.Fence {
		t.Errorf("needed was called %d times; fence %d, then %d", calls, first.Fence, got.Fence)
	}
	if err := w.rebuild.Run(w.ctx); err != nil || w.rebuild.Status().Fence == first.Fence { // the lock was released
		t.Errorf("fence %d of the next rebuild: %v", w.rebuild.Status().Fence, err)
	}
	other := newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space,
		Step: func(string) error {
			if err := w.rebuild.RunIf(w.ctx, 0, needed(true)); !errors.Is(err, guard.ErrBusy) {
				t.Errorf("during another rebuild: %v", err)
			}
			return nil
		},
	})
	if err := other.Run(w.ctx); err != nil || calls != 2 {
		t.Errorf("%v, needed was called %d times", err, calls)
	}
}

// During a rebuild nothing in the shard changes, also by processes with unguarded connections.
func TestShardIsHeldDuringARebuild(t *testing.T) {
	w := newWorld(t)
	w.fill("s")
	open := queue.NewList(w.raw(), space.ShardOf("s"), queue.Config{Lease: time.Millisecond}) // an unguarded process
	seller := admissiontest.NewAdmitter(w.t, w.raw(), space)
	letters, _, err := open.DeadLetters(w.ctx, queue.DeadQuery{})
	if err != nil || len(letters) != 1 {
		t.Fatalf("%v, %v", letters, err)
	}
	dead := letters[0].Message.ID
	tried := 0
	w.rebuild = newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space,
		Step: func(name string) error {
			if slices.Contains([]string{"begin", "fence", "suspend", "finish"}, name) {
				return nil
			}
			tried++
			before := w.copyOf()
			_, _, err1 := queuetest.Take(w.ctx, open, 5, "")
			_, err2 := open.Reclaim(w.ctx, 5)
			err3 := open.RetryDead(w.ctx, dead)
			_, err4 := open.BeginCancel(w.ctx, dead)
			err5 := open.FinishCancel(w.ctx, dead, true)
			err6 := open.Push(w.ctx, sale.Order{ID: 1, SaleID: "s", Buyer: "x", Slot: 1, Serial: 1})
			_, leased := before[space.ShardOf("s").Leases()]
			_, delayed := before[space.ShardOf("s").Delayed()]
			if err2 == nil && !leased && !delayed { // nothing to reclaim
				err2 = sale.ErrUnavailable
			}
			for i, err := range []error{err1, err2, err3, err4, err5, err6} {
				if !errors.Is(err, sale.ErrUnavailable) {
					t.Errorf("before %s, call %d: %v", name, i+1, err)
				}
			}
			d, err := seller.Admit(w.ctx, admission.Request{SaleID: "s", Buyer: "new", Key: name, KeyTTL: time.Minute})
			if d.Outcome != sale.UnknownSale {
				t.Errorf("before %s, a purchase: %v, %v", name, d.Outcome, err)
			}
			after := w.copyOf()
			delete(before, keyspace.Shard(0).OrderNumbers())
			delete(after, keyspace.Shard(0).OrderNumbers())
			if !maps.Equal(before, after) {
				t.Errorf("before %s the data changed", name)
			}
			return nil
		},
	})
	if err := w.rebuild.Run(w.ctx); err != nil || tried < 5 {
		t.Fatalf("%v after %d steps", err, tried)
	}
}

// A sale that does not balance after the rebuild is paused with the reason. Other sales continue.
func TestSaleThatDoesNotBalanceIsPaused(t *testing.T) {
	w := newWorld(t)
	w.create("good", 5, 1)
	w.create("bad", 5, 1)
	w.buy("good", "ann")
	w.rebuild = newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space,
		Pause: func(ctx context.Context, id, reason string) error {
			w.paused[id] = reason
			_, err := w.store.SetSwitch(ctx, id, sale.Paused)
			return err
		},
		Step: func(name string) error {
			if name == "audit" {
				w.raw().Incr(w.ctx, space.ShardOf("bad").Stock("bad"))
			}
			return nil
		},
	})
	w.runWithoutJournal()
	if len(w.paused) != 1 || w.paused["bad"] == "" {
		t.Fatalf("paused sales: %v", w.paused)
	}
	if d, err := w.try("bad", "bob"); err != nil || d.Outcome != sale.SalePaused {
		t.Errorf("bad: %v, %v", d.Outcome, err)
	}
	w.buy("good", "bob")
	w.start()
	w.check()
	w.run("bad")
	w.want("bad", 5, 0, 0, 0, 0)
}

// A backend accepts an order and crashes before it records the order. Another backend returns the order to a replay and
// records it once. A recorded order that was cancelled is not restored, because it is a row.
func TestReplayedOrderIsRecorded(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 2)
	first := admissiontest.NewAdmitter(w.t, w.raw(), space) // without a journal
	buy := func(a *admission.Admitter, key string) admission.Decision {
		t.Helper()
		d, err := a.Admit(
			w.ctx, admission.Request{SaleID: "s", Buyer: "ann", Key: key, KeyTTL: time.Minute, Fingerprint: "f"},
		)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	cancelled := buy(first, "k1")
	if err := w.store.Write(w.ctx, w.take("s", 1).Messages); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.store.CancelOrder(w.ctx, cancelled.OrderID); err != nil {
		t.Fatal(err)
	}
	waiting := buy(first, "k2")
	for range 3 {
		for key, was := range map[string]admission.Decision{"k1": cancelled, "k2": waiting} {
			if d := buy(w.admit, key); d.Outcome != sale.Replayed || d.OrderID != was.OrderID {
				t.Fatalf("replay of %s: %v %s", key, d.Outcome, d.OrderID)
			}
		}
	}
	lines := 0
	if _, err := w.journal.Orders(func(sale.Order) { lines++ }); err != nil || lines != 2 {
		t.Errorf("%d records in the journal, want one per order; %v", lines, err)
	}
	w.raw().FlushAll(w.ctx)
	w.run()
	w.want("s", 4, 1, 0, 0, 0)
}

// An order whose record did not fit on the disk is recorded by its replay.
func TestReplayIsRecordedAfterAFullDisk(t *testing.T) {
	w := newWorld(t)
	order := sale.Order{ID: 1<<32 + 1, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1}
	wantRecords := func(want int) {
		t.Helper()
		records := 0
		if _, err := w.journal.Orders(func(sale.Order) { records++ }); err != nil || records != want {
			t.Errorf("%d records in the journal, want %d; %v", records, want, err)
		}
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var all syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &all); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 0, Max: all.Max}); err != nil {
		t.Fatal(err)
	}
	w.writer.Record(1, []sale.Order{order})
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &all); err != nil {
		t.Fatal(err)
	}
	wantRecords(0)
	for range 2 {
		w.writer.Record(1, []sale.Order{order})
		wantRecords(1)
	}
}

// A rebuild keeps the requests that are stored with orders, also if it corrects the slots of their buyer: here, the
// first order of two is cancelled.
func TestReplayAfterARebuildGetsItsOrder(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 2)
	buy := func(key string) admission.Decision {
		t.Helper()
		d, err := w.admit.Admit(w.ctx, admission.Request{SaleID: "s", Buyer: "ann", Key: key})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first, second := buy("k1"), buy("k2")
	w.write("s", 1)
	if _, _, err := w.store.CancelOrder(w.ctx, first.OrderID); err != nil {
		t.Fatal(err)
	}
	w.put(w.copyOf())
	w.check()
	w.run()
	for key, was := range map[string]admission.Decision{"k1": first, "k2": second} {
		if d := buy(key); d.Outcome != sale.Replayed || d.OrderID != was.OrderID {
			t.Errorf("replay of %s: %v %s, want order %s", key, d.Outcome, d.OrderID, was.OrderID)
		}
	}
	if d := buy("k3"); d.Outcome != sale.Accepted {
		t.Errorf("another request: %v", d.Outcome)
	}
	w.want("s", 3, 2, 0, 0, 0)
}

// Request keys are in Redis only: after it was emptied, a repeated purchase is decided as a new one. docs/operations.md
// describes what the buyer gets.
func TestRepeatedPurchaseAfterRedisWasEmptied(t *testing.T) {
	w := newWorld(t)
	w.create("one", 9, 1)
	w.create("two", 9, 2)
	repeat := func(saleID string) admission.Decision {
		t.Helper()
		d, err := w.admit.Admit(
			w.ctx, admission.Request{SaleID: saleID, Buyer: "ann", Key: saleID, KeyTTL: time.Hour, Fingerprint: "f"},
		)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	only, first := repeat("one"), repeat("two")
	if d := repeat("two"); d.Outcome != sale.Replayed || d.OrderID != first.OrderID {
		t.Fatalf("before: %v %s", d.Outcome, d.OrderID)
	}
	w.raw().FlushAll(w.ctx)
	w.check()
	w.run()
	w.want("two", 8, 1, 0, 0, 0)
	if d := repeat("one"); d.Outcome != sale.AlreadyBought || d.OrderID != only.OrderID {
		t.Errorf("a buyer with per_buyer orders: %v %s, want already bought %s", d.Outcome, d.OrderID, only.OrderID)
	}
	second := repeat("two")
	if second.Outcome != sale.Accepted || second.OrderID == first.OrderID {
		t.Errorf("a buyer with fewer: %v %s, want another order", second.Outcome, second.OrderID)
	}
	if d := repeat("two"); d.Outcome != sale.Replayed || d.OrderID != second.OrderID {
		t.Errorf("once more: %v %s, want a replay of %s", d.Outcome, d.OrderID, second.OrderID)
	}
	w.want("two", 7, 2, 0, 0, 0)
}

func TestRebuildOfOneSaleKeepsTheOrderOfOthers(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	var other string // in the same shard
	for i := 0; other == "" || space.ShardOf(other) != space.ShardOf("s"); i++ {
		other = fmt.Sprint("other", i)
	}
	w.create(other, 5, 1)
	var bought []sale.OrderID
	for i := range 5 {
		bought = append(bought, w.buy(other, fmt.Sprint("b", i)))
	}
	w.run("s")
	var kept []sale.OrderID
	for _, m := range w.take(other, 5).Messages {
		kept = append(kept, m.ID)
	}
	if !slices.Equal(kept, bought) {
		t.Errorf("queued %v after the rebuild, want %v", kept, bought)
	}
}

// A server that was promoted and has no replicas clears the id of the server that it followed after an hour. Its data
// is verified as before, so a rebuild of one sale rebuilds no other.
func TestRebuildOfOneSaleOnAServerThatWasPromoted(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.create("other", 5, 1)
	followed := w.raw().HGet(w.ctx, space.ShardOf("s").Guard(), "run_id").Val() + ".f"
	w.raw().HSet(w.ctx, space.ShardOf("s").Guard(), "run_id", followed)
	w.check()
	w.run("s")
	if sales := w.rebuild.Status().Sales; len(sales) != 1 || sales[0].SaleID != "s" {
		t.Errorf("rebuilt %+v, want only s", sales)
	}
}

// A hold that is begun again, because the response was lost, begins as before; one of other data does not.
func TestHoldBeginsAgain(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	shard := space.ShardOf("s")
	runID := w.raw().HGet(w.ctx, shard.Guard(), "run_id").Val()
	deployment, _, err := w.store.Generation(w.ctx, int(shard))
	if err != nil {
		t.Fatal(err)
	}
	owner := guard.Owner{Deployment: deployment, Shards: len(space.All())}
	fence, err := rebuild.NextFence(w.ctx, w.store, shard, w.raw())
	if err != nil {
		t.Fatal(err)
	}
	h := rebuild.NewHold(w.raw(), shard, owner, fence)
	if err := h.Begin(w.ctx, "other", ""); !errors.Is(err, guard.ErrUnverified) {
		t.Errorf("begun with another id: %v", err)
	}
	for range 2 {
		if err := h.Begin(w.ctx, runID, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// During the rebuild of one sale nothing can be bought from the others of its shard, also from a process that has not
// noticed the rebuild: the order would not be in the new queue. They continue as they were.
func TestRebuildOfOneSaleSuspendsTheOthers(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{"s", "other", "paused"} {
		w.create(id, 5, 1)
	}
	paused, err := w.store.SetSwitch(w.ctx, "paused", sale.Paused)
	if err == nil {
		err = w.stock.Update(w.ctx, paused)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.buy("other", "ann")
	seller := admissiontest.NewAdmitter(w.t, w.raw(), space)
	w.rebuild = newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space,
		Step: func(name string) error {
			if name != "swap" {
				return nil
			}
			d, err := seller.Admit(w.ctx, admission.Request{SaleID: "other", Buyer: "bob", Key: "k", KeyTTL: time.Minute})
			if d.Outcome != sale.UnknownSale {
				t.Errorf("a purchase during the rebuild: %v, %v", d.Outcome, err)
			}
			return nil
		},
	})
	if err := w.rebuild.Run(w.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	w.check()
	w.want("other", 4, 1, 0, 0, 0)
	w.buy("other", "bob")
	w.want("other", 3, 2, 0, 0, 0)
	if d, err := w.try("paused", "ann"); err != nil || d.Outcome != sale.SalePaused {
		t.Errorf("the paused sale: %v, %v", d.Outcome, err)
	}
}

// pausingDatabase calls pause after the first read of the sales.
type pausingDatabase struct {
	*database
	pause func()
}

func (d *pausingDatabase) SaleSummaries(ctx context.Context) ([]store.SaleSummary, error) {
	all, err := d.database.SaleSummaries(ctx)
	if d.pause != nil {
		d.pause()
		d.pause = nil
	}
	return all, err
}

// A sale that is paused just before a rebuild suspends it remains paused.
func TestSaleThatIsPausedAtTheBeginOfARebuildStaysPaused(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	pause := func() {
		paused, err := w.store.SetSwitch(w.ctx, "s", sale.Paused)
		if err == nil {
			err = admission.NewStock(admission.StockConfig{Client: w.raw(), Space: space}).Update(w.ctx, paused)
		}
		if err != nil {
			t.Error(err)
		}
	}
	w.rebuild = newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: &pausingDatabase{w.store, pause}, Space: space,
	})
	w.run()
	if d, err := w.try("s", "ann"); err != nil || d.Outcome != sale.SalePaused {
		t.Errorf("a purchase: %v, %v", d.Outcome, err)
	}
}

// A sale that is removed while it is rebuilt would be stored again by the rebuild: the removal fails.
func TestSaleIsNotRemovedWhileItIsRebuilt(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	def := storetest.Sale("s", 5)
	w.rebuild = newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space,
		Step: func(name string) error {
			if name != "sales" {
				return nil
			}
			if err := w.stock.Remove(w.ctx, def); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("during the rebuild: %v, want ErrUnavailable", err)
			}
			return nil
		},
	})
	w.run()
	if err := w.stock.Remove(w.ctx, def); err != nil {
		t.Error(err)
	}
	shard := space.ShardOf("s")
	keys := []string{shard.Sales(), shard.Sale("s"), shard.Stock("s"), shard.Buyers("s"), shard.Returns("s")}
	if n, err := w.raw().Exists(w.ctx, keys...).Result(); err != nil || n > 0 {
		t.Errorf("%d keys are left, %v", n, err)
	}
}

// A process with another number of shards would drop the data of shards that it does not know.
func TestRebuildRejectsAnotherNumberOfShards(t *testing.T) {
	w := newWorld(t)
	w.fill("s")
	before := w.copyOf()
	more := keyspace.Space{Shards: shards + 1}
	other := newRebuilder(w.t, rebuild.Config{Pinner: openGuards(t, w.redis.URL, more), Store: w.store, Space: more})
	var wrong *guard.ShardsError
	if err := other.Run(w.ctx); !errors.As(err, &wrong) {
		t.Errorf("a rebuild with %d shards instead of %d: %v", shards+1, shards, err)
	}
	if !maps.Equal(before, w.copyOf()) {
		t.Error("the rebuild changed data")
	}
}

// A database that was restored from an older backup does not know the latest rebuilds. The guard detects it, and the
// rebuild that follows queues the orders that the database has lost.
func TestRebuildAfterTheDatabaseWasRestored(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.buy("s", "ann")
	w.write("s", 1)
	before := w.guard.Generation()
	w.run()
	w.buy("s", "ben")
	storetest.Exec(t, w.url, "DELETE FROM orders")
	storetest.Exec(t, w.url, fmt.Sprintf("UPDATE counters SET n = %d WHERE name IN ('generation', 'fence')", before))
	w.check()
	if _, ok := w.guard.Verified(); ok {
		t.Fatal("the restored database was not detected")
	}
	latest := w.guard.Generation()
	if err := w.rebuild.RunIf(w.ctx, 0, func(context.Context) bool { return true }); err != nil {
		t.Fatal(err)
	}
	w.check()
	if reason, ok := w.guard.Verified(); !ok || w.guard.Generation() <= latest {
		t.Fatalf("verified %v (%s), generation %d after %d", ok, reason, w.guard.Generation(), latest)
	}
	w.want("s", 3, 2, 0, 0, 0)
	w.drain()
	w.want("s", 3, 0, 2, 0, 0)
}

// Only a rebuild of all sales that an admin requests uses the data of another deployment.
func TestRebuildOfAnotherDeployment(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.store.ClaimDeployment(w.ctx, shards); err != nil {
		t.Fatal(err)
	}
	w.fill("s")
	w.run()
	storetest.Exec(t, w.url, "UPDATE counters SET n = n / 2 WHERE name = 'deployment'")
	w.check()
	if reason, ok := w.guard.Verified(); ok || !strings.Contains(reason, "sluice sale rebuild --all") {
		t.Fatalf("another deployment: verified %v, reason %q", ok, reason)
	}
	before := w.copyOf()
	for name, err := range map[string]error{
		"automatic":   w.rebuild.RunIf(w.ctx, 0, func(context.Context) bool { return true }),
		"of one sale": w.rebuild.Run(w.ctx, "s"),
	} {
		if _, foreign := errors.AsType[*guard.DeploymentError](err); !foreign {
			t.Errorf("rebuild %s: %v", name, err)
		}
	}
	if !maps.Equal(before, w.copyOf()) {
		t.Error("a rebuild changed data")
	}
	w.run()
	w.audit("s")
}

// A sale that only Redis has stops selling, because its orders cannot become rows, and continues when it is created
// again.
func TestRebuildSuspendsASaleThatTheDatabaseLacks(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.buy("s", "ann")
	storetest.Exec(t, w.url, "DELETE FROM sales")
	w.run()
	if d, err := w.try("s", "ben"); err == nil && d.Outcome == sale.Accepted {
		t.Fatal("a sale that the database lacks sold a unit")
	}
	if _, err := w.store.CreateSale(w.ctx, storetest.Sale("s", 5)); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.want("s", 4, 1, 0, 0, 0)
	w.buy("s", "ben")
	w.drain()
	w.want("s", 3, 0, 2, 0, 0)
}

// A batch that was taken before a rebuild is not written. Its orders are restored.
func TestBatchOfAnOlderGenerationIsRestored(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.buy("s", "ann")
	generation := w.guard.Generation()
	b := w.take("s", 1)
	w.raw().FlushAll(w.ctx)
	w.runWithoutJournal()
	if err := w.store.Write(store.WithGeneration(w.ctx, 0, generation), b.Messages); !errors.Is(err, store.ErrStale) {
		t.Fatalf("the batch was written after the rebuild: %v", err)
	}
	w.want("s", 5, 0, 0, 0, 0)
	restorer := rebuild.NewRestorer(w.guard, w.raw(), 0, w.store)
	for range 2 {
		if _, err := restorer.RestoreAt(w.ctx, w.guard.Generation(), b.Messages); err != nil {
			t.Fatal(err)
		}
		w.want("s", 4, 1, 0, 0, 0)
	}
	if _, err := restorer.RestoreAt(w.ctx, generation, b.Messages); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("restored at an older fence: %v", err)
	}
}

// The clock of an earlier Redis was ahead, so the number of its last return is above the clock of an empty one. The
// rebuild numbers returns from above the last one in SQL, and the sale balances.
func TestReturnsAreNumberedAboveThoseOfAClockThatWasAhead(t *testing.T) {
	w := newWorld(t)
	w.create("s", 10, 1)
	w.returnUnit("s", "ann")
	ahead := time.Now().Add(24 * time.Hour).UnixMicro()
	storetest.Exec(t, w.url, fmt.Sprintf("UPDATE orders SET return_number = %d WHERE return_number > 0", ahead))
	w.raw().FlushAll(w.ctx)
	w.run()
	w.want("s", 10, 0, 0, 0, 0)
	w.returnUnit("s", "bob")
	w.want("s", 10, 0, 0, 0, 0)
	if len(w.paused) > 0 {
		t.Errorf("paused: %v", w.paused)
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
	numbers, err := w.stock.ReturnUnits(w.ctx, saleID, []sale.Order{o})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.store.MarkReturned(w.ctx, []store.Return{{ID: id, Number: numbers[0]}}); err != nil {
		w.t.Fatal(err)
	}
	if err := w.stock.ConfirmReturns(w.ctx, saleID, []sale.Order{o}); err != nil {
		w.t.Fatal(err)
	}
}
