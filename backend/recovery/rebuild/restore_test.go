package rebuild_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/archive"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// hookedRows calls then after each read of the rows.
type hookedRows struct {
	*database
	then func()
}

func (h hookedRows) Recorded(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	rows, err := h.Store.Recorded(ctx, ids)
	h.then()
	return rows, err
}

// An order that was accepted before Redis was emptied is recorded after the files of the journal were read: the next
// Restore restores it.
func TestOrderRecordedDuringARestoreIsRestored(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	known := sale.Order{ID: w.buy("s", "ann"), SaleID: "s", Buyer: "ann", Slot: 1}
	late := sale.Order{ID: known.ID + 7, SaleID: "s", Buyer: "zoe", Slot: 1}
	generation := w.writer.Generation()
	var writer *rebuild.JournalWriter
	recorded := false
	rows := hookedRows{w.store, func() {
		if !recorded {
			recorded = true
			writer.Record(generation, []sale.Order{late})
		}
	}}
	writer = newWriter(rebuild.JournalWriterConfig{
		Journal: w.journal, Restorer: rebuild.NewRestorer(w.guard, w.raw(), 0, rows), Store: w.store,
	})
	if err := w.raw().FlushAll(w.ctx).Err(); err != nil {
		t.Fatal(err)
	}
	w.runWithoutJournal()
	for _, want := range []bool{true, true, false} {
		if restored, err := writer.Restore(w.ctx); err != nil || restored != want {
			t.Errorf("restored %v, %v; want %v", restored, err, want)
		}
	}
	w.drain()
	for _, o := range []sale.Order{known, late} {
		if _, err := w.store.Order(w.ctx, o.ID); err != nil {
			t.Errorf("the order of %s: %v", o.Buyer, err)
		}
	}
}

// Orders in other segments are restored, also if a segment of the journal cannot be read.
func TestRestoreDespiteAnUnreadableSegment(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	id := w.buy("s", "ann")
	unreadable := filepath.Join(w.redis.Dir, "journal", "000000000000.journal")
	if err := os.Mkdir(unreadable, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := w.raw().FlushAll(w.ctx).Err(); err != nil {
		t.Fatal(err)
	}
	w.runWithoutJournal()
	if restored, err := w.writer.Restore(w.ctx); restored || err == nil {
		t.Errorf("restored %v, %v", restored, err)
	}
	w.drain()
	if _, err := w.store.Order(w.ctx, id); err != nil {
		t.Errorf("the order in the other segment: %v", err)
	}
	if err := os.Remove(unreadable); err != nil {
		t.Fatal(err)
	}
	if restored, err := w.writer.Restore(w.ctx); !restored || err != nil {
		t.Errorf("after the segment was removed: restored %v, %v", restored, err)
	}
}

// The orders of many sales do not cost a round trip for each sale before their rows are read.
func TestReturnsOfManySalesAreReadTogether(t *testing.T) {
	w := newWorld(t)
	var orders []sale.Order
	for i := range 10 {
		id := fmt.Sprint("s", i)
		w.create(id, 1, 1)
		orders = append(orders, sale.Order{ID: w.buy(id, "ann"), SaleID: id, Buyer: "ann"})
	}
	orders = append(orders, sale.Order{ID: 77, SaleID: "unknown", Buyer: "ann"})
	w.drain()
	var trips int
	w.raw().AddHook(redisconn.Around(
		func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			if cmds[0].Name() == "hget" {
				trips++
			}
			return next(ctx, cmds)
		}))
	skipped, err := rebuild.NewRestorer(w.guard, w.raw(), 0, w.store).RestoreOrders(w.ctx, orders)
	if err != nil || len(skipped) != 1 || trips != 1 {
		t.Errorf("skipped %v, %v, after %d round trips, want 1", skipped, err, trips)
	}
}

// A file error, which may last, is logged once, and again after a success.
func TestUnreadableSegmentIsLoggedOnce(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.buy("s", "ann")
	unreadable := filepath.Join(w.redis.Dir, "journal", "000000000000.journal")
	for outage := 1; outage <= 2; outage++ {
		if err := os.Mkdir(unreadable, 0o700); err != nil {
			t.Fatal(err)
		}
		w.raw().FlushAll(w.ctx)
		w.runWithoutJournal()
		for range 3 {
			w.writer.RunOnce(w.ctx)
		}
		for _, text := range []string{"restore failed", "trim failed"} {
			if n := strings.Count(w.log.String(), text); n > outage || n == 0 && text == "restore failed" {
				t.Errorf("%d lines about %q after %d file errors", n, text, outage)
			}
		}
		if err := os.Remove(unreadable); err != nil {
			t.Fatal(err)
		}
		w.writer.RunOnce(w.ctx)
	}
}

// An order becomes a row, is cancelled and returns its unit and slot during RestoreOrders: neither a slot nor a letter
// is left.
func TestRestoreSkipsOrdersThatAreCancelledMeanwhile(t *testing.T) {
	for name, settle := range map[string]func(*world, sale.OrderID){
		"its row is cancelled": func(w *world, id sale.OrderID) {
			w.drain()
			o, _, err := w.store.CancelOrder(w.ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			numbers, err := w.stock.ReturnUnits(w.ctx, spread.Part{SaleID: "s"}, []sale.Order{o})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.store.MarkReturned(w.ctx, []store.Return{{ID: id, Number: numbers[0]}}); err != nil {
				t.Fatal(err)
			}
			if err := w.stock.ConfirmReturns(w.ctx, spread.Part{SaleID: "s"}, []sale.Order{o}); err != nil {
				t.Fatal(err)
			}
		},
		"its dead letter is cancelled": func(w *world, id sale.OrderID) {
			w.kill("s")
			w.cancelDead(id, w.beginCancel(id))
			if err := w.shard("s").FinishCancel(w.ctx, id, true); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 5, 1)
			id := w.buy("s", "ann")
			once := func() { settle(w, id) }
			restorer := rebuild.NewRestorer(w.guard, w.raw(), 0, hookedRows{w.store, func() { once(); once = func() {} }})
			done, err := restorer.RestoreAt(w.ctx, w.guard.Generation(), []sale.Order{{ID: id, SaleID: "s", Buyer: "ann"}})
			if err != nil || !reflect.DeepEqual(done, rebuild.Restored{Rows: 1}) {
				t.Errorf("restored a cancelled order: %+v, %v", done, err)
			}
			w.drain()
			w.want("s", 5, 0, 0, 0, 0)
			w.buy("s", "ann")
		})
	}
}

// unverified is the guard of a Redis without verified data.
type unverified struct{}

func (unverified) Generation() int64                           { return 0 }
func (unverified) RestoreFence(context.Context) (int64, error) { return 0, nil }
func (unverified) Deployment() int64                           { return 0 }

// Without verified data there is no fence that a script could check. RestoreOrders fails, and a batch stays with its
// worker.
func TestRestoreNeedsVerifiedData(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.raw().FlushAll(w.ctx)
	order := sale.Order{ID: 1<<32 + 1, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1}
	restorer := rebuild.NewRestorer(unverified{}, w.raw(), 0, w.store)
	if _, err := restorer.RestoreOrders(w.ctx, []sale.Order{order}); !errors.Is(err, guard.ErrUnverified) {
		t.Errorf("%v, want %v", err, guard.ErrUnverified)
	}
	if keys := w.raw().Keys(w.ctx, "*").Val(); len(keys) > 0 {
		t.Errorf("Redis has %v", keys)
	}
}

// Units of the sale are returned continuously. RestoreOrders recognises known orders and fails for the others without a
// change.
func TestRestoreDuringContinuousReturns(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	known := sale.Order{ID: w.buy("s", "ann"), SaleID: "s", Buyer: "ann"}
	lost := sale.Order{ID: known.ID + 1, SaleID: "s", Buyer: "bob"}
	reads := 0
	restorer := rebuild.NewRestorer(w.guard, w.raw(), 0, hookedRows{w.store, func() {
		reads++
		w.raw().HIncrBy(w.ctx, space.ShardOf("s").Sale("s"), "returned", 1)
	}})
	if done, err := restorer.RestoreAt(w.ctx, w.guard.Generation(), []sale.Order{known}); err != nil ||
		!reflect.DeepEqual(done, rebuild.Restored{Known: 1}) ||
		reads != 1 {
		t.Errorf("a known order: %+v, %v after %d reads", done, err, reads)
	}
	if done, err := restorer.RestoreAt(w.ctx, w.guard.Generation(), []sale.Order{known, lost}); !errors.Is(
		err, sale.ErrUnavailable,
	) ||
		!reflect.DeepEqual(done, rebuild.Restored{}) {
		t.Errorf("a lost order: %+v, %v", done, err)
	}
	w.want("s", 4, 1, 0, 0, 0)
	w.restoreJournal()
	plain := rebuild.NewRestorer(w.guard, w.raw(), 0, w.store)
	if done, err := plain.RestoreAt(w.ctx, w.guard.Generation(), []sale.Order{known, lost}); err != nil ||
		!reflect.DeepEqual(done, rebuild.Restored{Known: 1, Requeued: 1}) {
		t.Errorf("without returns: %+v, %v", done, err)
	}
	w.want("s", 3, 2, 0, 0, 0)
}

// The cancellation of a dead order has begun when Redis returns with older data, in which the order is queued. SQL
// rejects the cancellation, or the unit would never be returned.
func TestCancelBeforeARebuildIsRejected(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	id := w.buy("s", "ann")
	older := w.copyOf()
	w.kill("s")
	generation := w.beginCancel(id)
	w.put(older)
	w.run()
	message := sale.Order{ID: id, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1}
	ctx := store.WithGeneration(w.ctx, 0, generation)
	_, err := w.store.CancelDead(ctx, store.DeadOrder{Order: message})
	if !errors.Is(err, store.ErrStale) {
		t.Errorf("a queued order was cancelled as dead: %v", err)
	}
	w.drain()
	w.want("s", 4, 0, 1, 0, 0)
}

// beginCancel begins the cancellation of a dead order and returns the generation of the data.
func (w *world) beginCancel(id sale.OrderID) (generation int64) {
	w.t.Helper()
	letter, err := w.shard("s").BeginCancel(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	if letter.Generation != w.guard.Generation() || letter.Generation == 0 {
		w.t.Fatalf("letter of generation %d in data of generation %d", letter.Generation, w.guard.Generation())
	}
	return letter.Generation
}

func (w *world) cancelDead(id sale.OrderID, generation int64) {
	w.t.Helper()
	letter, err := w.shard("s").DeadLetter(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx := store.WithGeneration(w.ctx, 0, generation)
	if _, err := w.store.CancelDead(ctx, store.DeadOrder{Order: letter.Message}); err != nil {
		w.t.Fatal(err)
	}
}

// slowJournal is a journal that restores one order whenever the rebuild reads its state.
type slowJournal struct {
	*database
	restorer *rebuild.Restorer
	orders   []sale.Order
	fence    func() int64 // of the rebuild; 0: it does not wait for journals yet
}

func (d *slowJournal) Journals(ctx context.Context, shard int) ([]journal.Status, error) {
	fence := d.fence()
	if fence == 0 || len(d.orders) == 0 {
		return d.database.Journals(ctx, shard)
	}
	next := d.orders[:1]
	d.orders = d.orders[1:]
	_, err := d.restorer.RestoreOrders(ctx, next)
	return []journal.Status{{ID: "slow", Restoring: fence}}, err
}

// A rebuild waits for a journal as long as it restores orders: their units must not be sold again.
func TestRebuildWaitsForAJournalThatRestoresOrders(t *testing.T) {
	w := newWorld(t)
	w.create("s", 30, 1)
	var fence int64
	slow := &slowJournal{
		database: w.store, restorer: rebuild.NewRestorer(w.guard, w.raw(), 0, w.store), fence: func() int64 { return fence },
	}
	for i := range 20 {
		buyer := fmt.Sprint("b", i)
		slow.orders = append(slow.orders, sale.Order{ID: w.buy("s", buyer), SaleID: "s", Buyer: buyer, Slot: 1})
	}
	w.raw().FlushAll(w.ctx)
	var log bytes.Buffer
	w.rebuild = newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: slow, Space: space, JournalWait: time.Nanosecond,
		Log: slog.New(slog.NewTextHandler(&log, nil)),
		Step: func(name string) (err error) {
			if name == "journals" {
				fence, err = w.raw().HGet(w.ctx, space.ShardOf("s").Guard(), "fence").Int64()
			}
			return err
		},
	})
	w.runWithoutJournal()
	w.want("s", 10, 20, 0, 0, 0)
	const named = `msg="rebuild: waits for backends that restore their journals" journals=[slow]`
	if n := strings.Count(log.String(), named); n != 1 {
		t.Errorf("the log names the journal %d times, want one:\n%s", n, &log)
	}
}

// readJournals is a database that calls the next function of before when the rebuild that waits for journals reads
// them, and the last one for each further read.
type readJournals struct {
	*database

	waits  bool
	before []func() error
}

func (d *readJournals) Journals(ctx context.Context, shard int) ([]journal.Status, error) {
	if d.waits {
		if err := d.before[0](); err != nil {
			return nil, err
		}
		d.before = d.before[min(1, len(d.before)-1):]
	}
	return d.database.Journals(ctx, shard)
}

// rebuildAndRead rebuilds with journals of this process, and calls the functions as readJournals does. The time for
// which the rebuild waits for journals passes during the first read.
func (w *world) rebuildAndRead(own rebuild.JournalWriters, before ...func() error) {
	w.t.Helper()
	db := &readJournals{database: w.store, before: before}
	r := newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: db, Space: space, JournalWait: time.Nanosecond, Journals: own,
		Step: func(name string) error {
			db.waits = name == "journals"
			return nil
		},
	})
	if err := r.Run(w.ctx); err != nil {
		w.t.Fatal(err)
	}
	w.check()
}

// restoreAndReport restores the journal of a writer and sends a heartbeat.
func restoreAndReport(ctx context.Context, w *rebuild.JournalWriter) error {
	_, err := w.Restore(ctx)
	return errors.Join(err, w.Heartbeat(ctx))
}

// The state of the journals that a rebuild has read can be as old as the answer of the database was slow. The rebuild
// reads it again before it stops waiting.
func TestRebuildReadsTheJournalsAfterItHasWaited(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.buy("s", "ann")
	w.raw().FlushAll(w.ctx)
	report := func() error { return w.writer.Heartbeat(w.ctx) }
	w.rebuildAndRead(nil,
		report,
		func() error {
			fence, err := w.raw().HGet(w.ctx, space.ShardOf("s").Guard(), "fence").Int64()
			return errors.Join(err, w.store.Heartbeat(w.ctx, w.journal.ID(), 0, -fence))
		},
		report, // it was late
		func() error { return restoreAndReport(w.ctx, w.writer) },
	)
	w.want("s", 4, 1, 0, 0, 0)
}

// unavailableOnce is a database that does not store the first heartbeat.
type unavailableOnce struct {
	*database

	failed bool
}

func (d *unavailableOnce) Heartbeat(ctx context.Context, id string, shard int, generation int64) error {
	if !d.failed {
		d.failed = true
		return sale.ErrUnavailable
	}
	return d.database.Heartbeat(ctx, id, shard, generation)
}

// Redis and the database were unavailable. When the database is available again, its journals seem silent, because none
// could send a heartbeat.
func TestRebuildWaitsForJournalsAfterAnOutageOfTheDatabase(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.buy("s", "ann")
	w.raw().FlushAll(w.ctx)
	if err := w.writer.Heartbeat(w.ctx); err != nil {
		t.Fatal(err)
	}
	storetest.Exec(t, w.url, "UPDATE journals SET seen_at = seen_at - 60000")
	j := newJournal(t, 0)
	own := newWriter(rebuild.JournalWriterConfig{
		Journal: j, Store: &unavailableOnce{database: w.store},
		Restorer: rebuild.NewRestorer(w.guard, w.raw(), 0, w.store),
	})
	if err := own.Heartbeat(w.ctx); !errors.Is(err, sale.ErrUnavailable) {
		t.Fatal(err)
	}
	w.rebuildAndRead(rebuild.JournalWriters{own},
		func() error { return restoreAndReport(w.ctx, own) },
		func() error { return restoreAndReport(w.ctx, w.writer) },
	)
	w.want("s", 4, 1, 0, 0, 0)
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// failingRows is a database that calls during for each reading of orders, and then returns fails, if not nil.
type failingRows struct {
	*store.Store

	during func()
	fails  error
}

func (d *failingRows) Recorded(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	d.during()
	if d.fails != nil {
		return nil, d.fails
	}
	return d.Store.Recorded(ctx, ids)
}

// A journal reports that it restores its orders from the first attempt in a generation until they are restored, also
// between two attempts during an outage. After a file error, which may last, it does not report that again.
func TestJournalReportsThatItRestores(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.buy("s", "ann")
	w.raw().FlushAll(w.ctx)
	w.runWithoutJournal()
	fence := w.guard.Generation()
	unreadable := filepath.Join(w.redis.Dir, "journal", "000000000000.journal")
	fileError := func() {
		if err := os.Mkdir(unreadable, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	readable := func() {
		if err := os.Remove(unreadable); err != nil {
			t.Fatal(err)
		}
	}
	none := func() {}
	restoring, unrestored, restored := journal.Status{
		Restoring: fence,
	}, journal.Status{}, journal.Status{
		Generation: fence,
	}
	for name, attempts := range map[string][]struct {
		before      func()
		fails       error
		during, end journal.Status
	}{
		"first attempt": {{none, nil, restoring, restored}},
		"outage": {
			{none, sale.ErrUnavailable, restoring, restoring},
			{none, sale.ErrUnavailable, restoring, restoring},
			{none, nil, restoring, restored},
		},
		"file error": {
			{fileError, nil, restoring, unrestored},
			{none, nil, unrestored, unrestored},
			{readable, nil, unrestored, restored},
		},
	} {
		t.Run(name, func(t *testing.T) {
			rows := &failingRows{Store: w.store.Store}
			writer := newWriter(rebuild.JournalWriterConfig{
				Journal: w.journal, Restorer: rebuild.NewRestorer(w.guard, w.raw(), 0, rows), Store: w.store,
			})
			reports := func(when string, want journal.Status) {
				t.Helper()
				if err := writer.Heartbeat(w.ctx); err != nil {
					t.Fatal(err)
				}
				all, err := w.store.Journals(w.ctx, 0)
				if err != nil || len(all) != 1 || all[0].Restoring != want.Restoring || all[0].Generation != want.Generation {
					t.Errorf("%s: the journal reports %+v, %v; want %+v", when, all, err, want)
				}
			}
			reports("a new process", unrestored)
			for i, a := range attempts {
				a.before()
				rows.during = func() { reports(fmt.Sprint("during attempt ", i), a.during) }
				rows.fails = a.fails
				if done, err := writer.Restore(w.ctx); done != (a.end == restored) || done == (err != nil) {
					t.Errorf("attempt %d: restored %v, %v", i, done, err)
				}
				reports(fmt.Sprint("after attempt ", i), a.end)
			}
		})
	}
}

// An order that an admin has dropped, because it can have no row, is not restored, neither from the journal nor from an
// older Redis.
func TestDroppedOrderIsNotRestored(t *testing.T) {
	for name, lose := range map[string]func(w *world, older map[string]string){
		"from the journal":    func(w *world, _ map[string]string) { w.raw().FlushAll(w.ctx) },
		"from an older Redis": func(w *world, older map[string]string) { w.put(older) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 5, 1)
			w.buy("s", "ann")
			id := w.kill("s")
			letter, err := w.queues[0].BeginCancel(w.ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			older := w.copyOf()
			dead := store.DeadOrder{Order: letter.Message}
			if err := w.store.DropDead(w.ctx, dead, store.ErrRejected); err != nil {
				t.Fatal(err)
			}
			if err := w.queues[0].FinishCancel(w.ctx, id, true); err != nil {
				t.Fatal(err)
			}
			w.want("s", 5, 0, 0, 0, 0)
			lose(w, older)
			w.run()
			w.want("s", 5, 0, 0, 0, 0)
			if letters, _, err := w.queues[0].DeadLetters(w.ctx, queue.DeadQuery{}); err != nil || len(letters) > 0 {
				t.Errorf("letters %+v, %v", letters, err)
			}
		})
	}
}

// A backend that was stopped starts with a journal of orders of an archived sale: they are not restored, the journal
// does not keep them, and the log has their number, because Redis may have lost one of them before the archive.
func TestOrdersOfArchivedSalesAreNotRestored(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	w.create("other", 5, 1)
	for i := range 3 {
		w.buy("s", fmt.Sprint("buyer", i))
	}
	w.drain()
	w.buy("other", "ann")
	w.archive("s")
	lost := sale.Order{ID: 7, SaleID: "s", Buyer: "zoe", Slot: 1}
	rehearsed := sale.Order{ID: 8, SaleID: sale.RehearsalPrefix + "removed", Buyer: "zoe", Slot: 1}
	if err := w.journal.Append(lost, rehearsed); err != nil {
		t.Fatal(err)
	}

	w.raw().FlushAll(w.ctx)
	w.start()               // begins a segment, so that Trim can delete the older one
	w.writer.RunOnce(w.ctx) // Redis is not verified yet: Trim would remove the order before the log has it
	w.run()
	w.want("other", 4, 1, 0, 0, 0)
	if stats, err := w.queues[0].Stats(w.ctx); err != nil || stats.Ready != 1 || stats.Dead != 0 {
		t.Errorf("the queue has %+v, %v; want the order of the other sale", stats, err)
	}
	if held := w.raw().Keys(w.ctx, "*:sale:s*").Val(); len(held) > 0 {
		t.Errorf("Redis has keys of the archived sale: %q", held)
	}
	log := w.log.String()
	for _, part := range []string{"cannot be restored", " sale=s orders=4 ", " " + lost.ID.String() + "]"} {
		if strings.Count(log, part) != 1 {
			t.Errorf("the log does not have %q once:\n%s", part, log)
		}
	}
	restorer := rebuild.NewRestorer(w.guard, w.raw(), 0, w.store)
	if skipped, err := restorer.RestoreOrders(w.ctx, []sale.Order{lost, rehearsed}); err != nil ||
		!slices.Equal(skipped, []sale.Order{lost}) {
		t.Errorf("skipped %+v, %v", skipped, err)
	}
	if err := w.journal.Trim(w.ctx, w.store); err != nil {
		t.Fatal(err)
	}
	left := map[string]int{}
	if _, err := w.journal.Orders(func(o sale.Order) { left[o.SaleID]++ }); err != nil {
		t.Fatal(err)
	}
	if left["s"] != 0 || left["other"] != 1 {
		t.Errorf("the journal has orders of sales %v", left)
	}
}

// archive archives a sale.
func (w *world) archive(id string) {
	w.t.Helper()
	if _, err := w.store.SetSwitch(w.ctx, id, sale.Closed); err != nil {
		w.t.Fatal(err)
	}
	_, err := archive.New(archive.Config{
		Store: w.store.Store, Stock: w.stock, Audit: audit.New(w.stock, w.store).Audit, Dir: w.t.TempDir(),
		Undelivered: func(context.Context, string) (bool, error) { return false, nil },
		Log:         slog.New(slog.DiscardHandler),
	}).Archive(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
}

// A process can end before it restores an order that was recorded after its journal was restored. The next process
// restores the order. It also removes a journal that no longer exists.
func TestLateOrderIsRestoredAfterARestart(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	before := w.writer.Generation()
	w.run()
	w.writer.Record(before, []sale.Order{{ID: 7, SaleID: "s", Buyer: "ann", Slot: 1}})
	w.want("s", 5, 0, 0, 0, 0)
	if err := w.store.Heartbeat(w.ctx, "gone", 0, 1); err != nil {
		t.Fatal(err)
	}
	_, err := store.UpdateRows(w.ctx, w.store.DB, "test", "UPDATE journals SET seen_at = 0 WHERE id = $1", "gone")
	if err != nil {
		t.Fatal(err)
	}
	w.start()
	w.check()
	if err := (rebuild.JournalWriters{w.writer}).Register(w.ctx); err != nil {
		t.Fatal(err)
	}
	if all, err := w.store.Journals(w.ctx, 0); err != nil || len(all) != 1 || all[0].Generation != 0 {
		t.Errorf("a journal with an order that is not restored reports %+v, %v", all, err)
	}
	w.restoreJournal()
	w.want("s", 4, 1, 0, 0, 0)
}

// writeToFullDisk replaces the writer of w by one with a disk that is full during calls of fullDisk, except for the
// first order.
func (w *world) writeToFullDisk(onlyCopy bool) (j *journal.Journal, fullDisk func(do func())) {
	w.t.Helper()
	dir := w.redis.Dir + "/full"
	j, err := journal.Open(dir, journal.Config{Segment: 1, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.writer = newWriter(rebuild.JournalWriterConfig{
		Journal: j, Store: w.store, OnlyCopy: onlyCopy,
		Restorer: rebuild.NewRestorer(w.guard, w.guard.Raw(), 0, w.store),
	})
	w.admit = w.admitter()
	return j, func(do func()) { // a new segment cannot be created
		w.t.Helper()
		if err := os.Rename(dir, dir+".away"); err != nil {
			w.t.Fatal(err)
		}
		do()
		if err := os.Rename(dir+".away", dir); err != nil {
			w.t.Fatal(err)
		}
	}
}

// If the journal has the only copy that outlives the process, a purchase that it cannot record gets an error, and
// further purchases take no unit until it has the order.
func TestPurchasesWaitForTheOnlyCopy(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	j, fullDisk := w.writeToFullDisk(true)
	w.buy("s", "ann") // begins a segment
	fullDisk(func() {
		for _, buyer := range []string{"bob", "eve"} {
			if d, err := w.try("s", buyer); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("%s on a full disk: %v, %v", buyer, d, err)
			}
		}
		w.writer.RunOnce(w.ctx)
		if d, err := w.try("s", "bob"); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("bob on a disk that is still full: %v, %v", d, err)
		}
	})
	w.want("s", 3, 2, 0, 0, 0)
	w.writer.RunOnce(w.ctx)
	bob, err := w.try("s", "bob")
	if err != nil || bob.OrderID == 0 {
		t.Errorf("bob with free space: %v, %v", bob, err)
	}
	w.buy("s", "eve")
	found := false
	if _, err := j.Orders(func(o sale.Order) { found = found || o.ID == bob.OrderID }); err != nil || !found {
		t.Errorf("the journal has the order of bob: %t, %v", found, err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// Purchases also take no unit during an attempt to append what the only copy lacks.
func TestPurchasesWaitWhileTheOnlyCopyIsAppended(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	j, fullDisk := w.writeToFullDisk(true)
	w.buy("s", "ann") // begins a segment
	fullDisk(func() {
		if _, err := w.try("s", "bob"); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("bob on a full disk: %v", err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for range 2000 {
				w.writer.RunOnce(w.ctx)
			}
		}()
		for running := true; running; {
			select {
			case <-ended:
				running = false
			default:
			}
			if _, err := (rebuild.JournalWriters{w.writer}).Generation(0); err == nil {
				t.Error("a purchase may take a unit, although the journal lacks an order")
				<-ended
				running = false
			}
		}
	})
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// A full disk keeps orders out of the journal. They are restored from memory, and the journal gets them when there is
// space again, or at the end of the process.
func TestOrdersOfAFullDisk(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5, 1)
	j, fullDisk := w.writeToFullDisk(false)
	buyOnFullDisk := func(buyer string) (id sale.OrderID) {
		t.Helper()
		fullDisk(func() { id = w.buy("s", buyer) })
		return id
	}
	journalHas := func(id sale.OrderID, want bool) {
		t.Helper()
		found := false
		if _, err := j.Orders(func(o sale.Order) { found = found || o.ID == id }); err != nil || found != want {
			t.Errorf("the journal has order %v: %t, %v; want %t", id, found, err, want)
		}
	}
	w.buy("s", "ann") // begins a segment
	bob := buyOnFullDisk("bob")
	w.raw().FlushAll(w.ctx)
	w.run()
	w.want("s", 3, 2, 0, 0, 0)
	journalHas(bob, false)
	w.writer.RunOnce(w.ctx)
	journalHas(bob, true)

	eve := buyOnFullDisk("eve")
	ended, end := context.WithCancel(w.ctx)
	end()
	if err := w.writer.Run(ended); err != nil {
		t.Fatal(err)
	}
	journalHas(eve, true)
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}
