package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/internal/loop"
)

// rebuiltAt is a guard of a Redis that was rebuilt with this fence; 0: a rebuild is in progress.
type rebuiltAt struct {
	fence atomic.Int64
	calls atomic.Int64
}

func (g *rebuiltAt) Deployment() int64 { return 0 }

func (g *rebuiltAt) Generation() int64 { return g.fence.Load() }

func (g *rebuiltAt) RestoreFence(context.Context) (int64, error) {
	g.calls.Add(1)
	if g.fence.Load() < 0 {
		return 0, fmt.Errorf("down: %w", sale.ErrUnavailable)
	}
	return g.fence.Load(), nil
}

// noRows is a database without orders.
type noRows struct{}

func (noRows) Heartbeat(context.Context, string, int, int64) error { return nil }

func (noRows) RemoveSilent(context.Context, int) error { return nil }

func (noRows) RemovedSales(context.Context, []string) ([]string, error) { return nil, nil }

func (noRows) Recorded(context.Context, []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	return nil, nil
}

// newJournal returns a journal with these orders of one sale and buyer. segment is as in journal.Config. The caller
// closes the journal.
func newJournal(t *testing.T, segment int64, orders ...sale.OrderID) *journal.Journal {
	t.Helper()
	j, err := journal.Open(t.TempDir(), journal.Config{Segment: segment})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range orders {
		if err := j.Append(sale.Order{ID: id, SaleID: "s", Buyer: "ann", Slot: 1}); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

// run runs a JournalWriter. stop ends it and closes its journal.
func run(t *testing.T, w *rebuild.JournalWriter, j *journal.Journal) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := errors.Join(<-done, j.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A JournalWriter checks Redis rarely, and immediately when the guard notices a rebuild. While a rebuild waits for it,
// it checks often.
func TestJournalIsRestoredWhenTheGuardNoticesARebuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(t, 0)
		g, rebuilds := &rebuiltAt{}, loop.NewWake()
		g.fence.Store(1)
		w := newWriter(rebuild.JournalWriterConfig{
			Journal: j, Store: noRows{}, Rebuilds: rebuilds, Restorer: rebuild.NewRestorer(g, nil, 0, noRows{}),
		})
		stop := run(t, w, j)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := g.calls.Swap(0); n > 32 {
			t.Errorf("%d checks in a minute", n)
		}
		time.Sleep(time.Second) // between two checks

		g.fence.Store(0)
		rebuilds.Up()
		synctest.Wait()
		g.fence.Store(2)
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		if w.Restored() != 2 {
			t.Errorf("the journal is restored up to %d", w.Restored())
		}

		// An order that was accepted before the rebuild is recorded after the journal was restored.
		g.calls.Store(0)
		g.fence.Store(-1)
		w.Record(1, []sale.Order{{ID: 7, SaleID: "s", Buyer: "ann", Slot: 1}})
		synctest.Wait()
		if g.calls.Load() == 0 {
			t.Error("a late order waits for the next check")
		}
		stop()
	})
}

// Both stores return with older data, and the fence of the next rebuild is lower. An order that was accepted before is
// recorded after the journal was restored.
func TestOrderOfALaterGenerationIsRestored(t *testing.T) {
	j := newJournal(t, 0)
	g := &rebuiltAt{}
	w := newWriter(rebuild.JournalWriterConfig{
		Journal: j, Store: noRows{}, Restorer: rebuild.NewRestorer(g, noSales{}, 0, allRows{}),
	})
	restores := func(want bool, when string) {
		t.Helper()
		if restored, err := w.Restore(t.Context()); err != nil || restored != want {
			t.Errorf("%s: restored %v, %v; want %v", when, restored, err, want)
		}
	}
	g.fence.Store(9)
	restores(true, "a new process")
	g.fence.Store(6)
	restores(true, "older data")
	w.Record(6, []sale.Order{{ID: 7, SaleID: "s", Buyer: "ann", Slot: 1}})
	restores(false, "an order that was accepted since")
	w.Record(9, []sale.Order{{ID: 8, SaleID: "s", Buyer: "bob", Slot: 1}})
	restores(true, "an order that was accepted before")
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// slowRedis is a guard of a Redis whose calls take one and two milliseconds in turn.
type slowRedis struct {
	*rebuiltAt
}

func (g slowRedis) RestoreFence(ctx context.Context) (int64, error) {
	time.Sleep(time.Duration(1+g.calls.Load()%2) * time.Millisecond)
	return g.rebuiltAt.RestoreFence(ctx)
}

// beats is a database that records the longest time between two heartbeats.
type beats struct {
	noRows

	last      time.Time
	longest   time.Duration
	restoring int // heartbeats while the journal was restored
}

func (b *beats) Heartbeat(_ context.Context, _ string, _ int, generation int64) error {
	now := time.Now()
	if generation < 0 {
		b.restoring++
	}
	if !b.last.IsZero() {
		b.longest = max(b.longest, now.Sub(b.last))
	}
	b.last = now
	return nil
}

// A rebuild does not wait for a journal that was silent for six seconds, so two heartbeats in a row may fail.
func TestHeartbeatsOfAJournalAreRegular(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(t, 0)
		g, db := &rebuiltAt{}, &beats{}
		g.fence.Store(1)
		w := newWriter(rebuild.JournalWriterConfig{
			Journal: j, Store: db, Restorer: rebuild.NewRestorer(slowRedis{g}, nil, 0, db),
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := errors.Join(w.Run(ctx), j.Close()); err != nil {
			t.Error(err)
		}
		if db.longest == 0 || db.longest > 2100*time.Millisecond {
			t.Errorf("%v between two heartbeats, want two seconds", db.longest)
		}
	})
}

// noSales is a Redis without sales.
type noSales struct{ redisconn.Client }

func (noSales) Pipelined(_ context.Context, add func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	p := client.Pipeline()
	if err := add(p); err != nil {
		return nil, err
	}
	for _, cmd := range p.Cmds() {
		cmd.SetErr(redis.Nil)
	}
	return p.Cmds(), redis.Nil
}

// stuckRedis is a Redis without sales that answers after ten seconds.
type stuckRedis struct{ noSales }

func (s stuckRedis) Pipelined(ctx context.Context, add func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	time.Sleep(10 * time.Second)
	return s.noSales.Pipelined(ctx, add)
}

// allRows is a database in which every order is a row.
type allRows struct{ noRows }

func (allRows) Recorded(_ context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	rows := map[sale.OrderID]sale.Status{}
	for _, id := range ids {
		rows[id] = sale.StatusCreated
	}
	return rows, nil
}

// A slow restoration does not make the journal silent, so the rebuild waits for it.
func TestHeartbeatsOfAJournalContinueWhileAStoreIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(t, 0, 7)
		g, db := &rebuiltAt{}, &beats{}
		g.fence.Store(1)
		w := newWriter(rebuild.JournalWriterConfig{
			Journal: j, Store: db, Restorer: rebuild.NewRestorer(g, stuckRedis{}, 0, allRows{}),
		})
		ctx, stop := context.WithTimeout(t.Context(), 11*time.Second)
		defer stop()
		if err := errors.Join(w.Run(ctx), j.Close()); err != nil || w.Restored() != 1 {
			t.Errorf("restored up to %d, %v", w.Restored(), err)
		}
		if db.longest > 2100*time.Millisecond || db.restoring < 5 {
			t.Errorf("%v between two of %d heartbeats, want two seconds", db.longest, db.restoring)
		}
	})
}

// brokenRedis is a Redis without sales that does not answer while it is broken.
type brokenRedis struct {
	noSales
	broken *atomic.Bool
}

func (b brokenRedis) Pipelined(ctx context.Context, add func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	if b.broken.Load() {
		return nil, sale.ErrUnavailable
	}
	return b.noSales.Pipelined(ctx, add)
}

// lastBeat is a database that records the last heartbeat. Every order is a row.
type lastBeat struct {
	allRows
	generation atomic.Int64
}

func (b *lastBeat) Heartbeat(_ context.Context, _ string, _ int, generation int64) error {
	b.generation.Store(generation)
	return nil
}

// A backend that loses only its connection to Redis while it restores its journal holds a rebuild for half a minute,
// and not until it is stopped. It restores its journal when it reaches Redis again.
func TestDisconnectedBackendDoesNotHoldARebuild(t *testing.T) {
	for name, fence := range map[string]int64{"in the middle": 1, "before the fence is known": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJournal(t, 0, 7)
				g, db := &rebuiltAt{}, &lastBeat{}
				client := brokenRedis{broken: &atomic.Bool{}}
				client.broken.Store(true)
				g.fence.Store(1)
				w := newWriter(rebuild.JournalWriterConfig{
					Journal: j, Store: db, Restorer: rebuild.NewRestorer(g, client, 0, db),
				})
				reports := func(want int64) {
					t.Helper()
					synctest.Wait()
					if got := db.generation.Load(); got != want {
						t.Errorf("the journal reports %d, want %d", got, want)
					}
				}
				stop := run(t, w, j)
				reports(-1)
				g.fence.Store(fence)
				time.Sleep(29 * time.Second)
				reports(-1)
				time.Sleep(4 * time.Second)
				reports(0)
				time.Sleep(time.Hour)
				reports(0)
				client.broken.Store(false)
				g.fence.Store(1)
				time.Sleep(4 * time.Second)
				reports(1)
				stop()
			})
		})
	}
}

// slowBeats is a database that stores a heartbeat in ten seconds. Every order is a row.
type slowBeats struct{ allRows }

func (slowBeats) Heartbeat(context.Context, string, int, int64) error {
	time.Sleep(10 * time.Second)
	return nil
}

// A rebuild waits five seconds for a journal that does not report that it restores orders. On a slow disk the report
// takes longer, and the orders must be restored by then.
func TestOrdersAreRestoredWhileAHeartbeatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(t, 0, 7)
		g, rebuilds := &rebuiltAt{}, loop.NewWake()
		g.fence.Store(1)
		w := newWriter(rebuild.JournalWriterConfig{
			Journal: j, Store: slowBeats{}, Rebuilds: rebuilds,
			Restorer: rebuild.NewRestorer(g, noSales{}, 0, allRows{}),
		})
		stop := run(t, w, j)
		for fence := range int64(5) {
			g.fence.Store(1 + fence)
			rebuilds.Up()
			synctest.Wait()
			if w.Restored() != 1+fence {
				t.Errorf("after rebuild %d, the journal is restored up to %d", 1+fence, w.Restored())
			}
			time.Sleep(time.Second) // the heartbeat continues
		}
		stop()
	})
}

// busy is a database in which the first heartbeat and each reading of orders take until their context ends.
type busy struct {
	noRows

	reported []int64 // the generation of each heartbeat
}

func (b *busy) Heartbeat(ctx context.Context, _ string, _ int, generation int64) error {
	b.reported = append(b.reported, generation)
	if len(b.reported) == 1 {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (*busy) Recorded(ctx context.Context, _ []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A heartbeat in progress does not delay the report that the orders are being restored, and a long restoration does not
// delay that of a later rebuild.
func TestSlowCallsDoNotDelayARebuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(t, 0, 7)
		g, rebuilds, db := &rebuiltAt{}, loop.NewWake(), &busy{}
		w := newWriter(rebuild.JournalWriterConfig{
			Journal: j, Store: db, Rebuilds: rebuilds, Restorer: rebuild.NewRestorer(g, noSales{}, 0, db),
		})
		stop := run(t, w, j)
		synctest.Wait()
		for _, fence := range []int64{3, 4} {
			g.fence.Store(fence)
			rebuilds.Up()
			synctest.Wait()
		}
		if want := []int64{0, -3, -4}; !slices.Equal(db.reported, want) {
			t.Errorf("heartbeats report %v, want %v", db.reported, want)
		}
		stop()
	})
}

// tenSeconds is a database that reads orders in ten seconds, unless the context ends. Every order is a row.
type tenSeconds struct{ allRows }

func (d tenSeconds) Recorded(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	loop.Sleep(ctx, 10*time.Second)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return d.allRows.Recorded(ctx, ids)
}

// A rebuild wakes a journal at each of its steps. A restoration in progress continues.
func TestRestorationContinuesUntilRedisIsRebuiltAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(t, 0, 7)
		g, rebuilds := &rebuiltAt{}, loop.NewWake()
		g.fence.Store(1)
		w := newWriter(rebuild.JournalWriterConfig{
			Journal: j, Store: noRows{}, Rebuilds: rebuilds,
			Restorer: rebuild.NewRestorer(g, noSales{}, 0, tenSeconds{}),
		})
		stop := run(t, w, j)
		for range 11 {
			rebuilds.Up()
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if w.Restored() != 1 {
			t.Errorf("the journal is restored up to %d", w.Restored())
		}
		stop()
	})
}

// slowRows is a database that answers after three seconds. Every order is a row.
type slowRows struct {
	*beats
	guard  *rebuiltAt
	checks []int64 // of the guard, until each query
}

func (s *slowRows) Recorded(ctx context.Context, ids []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	s.checks = append(s.checks, s.guard.calls.Load())
	time.Sleep(3 * time.Second)
	return allRows{}.Recorded(ctx, ids)
}

// A journal that is trimmed slowly is not silent, and notices a rebuild before all its segments are trimmed.
func TestJournalIsNotSilentWhileItIsTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const segments = 5
		j := newJournal(t, 1, 1, 2, 3, 4, 5) // each order is in a segment of its own
		g := &rebuiltAt{}
		g.fence.Store(1)
		db := &slowRows{beats: &beats{}, guard: g}
		w := newWriter(rebuild.JournalWriterConfig{
			Journal: j, Store: db, Restorer: rebuild.NewRestorer(g, noSales{}, 0, allRows{}),
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := errors.Join(w.Run(ctx), j.Close()); err != nil {
			t.Error(err)
		}
		if len(db.checks) != segments || len(slices.Compact(slices.Clone(db.checks))) != segments {
			t.Errorf("%d segments were trimmed after %v checks for a rebuild, want each after another one", segments, db.checks)
		}
		if db.longest > 2100*time.Millisecond {
			t.Errorf("%v between two heartbeats, want two seconds", db.longest)
		}
	})
}

// stuckRows is a database that does not answer.
type stuckRows struct{ noRows }

func (stuckRows) Recorded(ctx context.Context, _ []sale.OrderID) (map[sale.OrderID]sale.Status, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A rebuild waits five seconds for a journal that does not restore its orders. A slow database can take longer to trim
// a segment, so a rebuild interrupts that.
func TestJournalIsRestoredBeforeItIsTrimmedFurther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(t, 1, 1, 2) // the first segment can be trimmed
		g, rebuilds := &rebuiltAt{}, loop.NewWake()
		g.fence.Store(1)
		var log strings.Builder
		w := newWriter(rebuild.JournalWriterConfig{
			Journal: j, Store: stuckRows{}, Rebuilds: rebuilds, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Restorer: rebuild.NewRestorer(g, noSales{}, 0, allRows{}),
		})
		stop := run(t, w, j)
		synctest.Wait()
		if w.Restored() != 1 {
			t.Errorf("the journal is restored up to %d before it is trimmed", w.Restored())
		}
		g.fence.Store(2)
		rebuilds.Up()
		synctest.Wait()
		if w.Restored() != 2 {
			t.Errorf("the journal is restored up to %d", w.Restored())
		}
		stop()
		if log.Len() > 0 {
			t.Errorf("log: %s", &log)
		}
	})
}
