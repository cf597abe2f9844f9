package rebuild_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/queue"
	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

// Redis is emptied again before any step of a rebuild: the rebuild fails and pauses no sale, and the next one succeeds.
func TestRedisIsEmptiedAtEveryStep(t *testing.T) {
	w := newWorld(t)
	w.create("s", 9, 1)
	w.buy("s", "ann")
	w.write("s", 1)
	w.buy("s", "bob")
	for _, step := range slices.Clone(w.steps)[1:] {
		again := newRebuilder(w.t, rebuild.Config{
			Pinner: w.guards, Store: w.store, Space: space,
			Pause: w.noPause("before " + step),
			Step: func(name string) error {
				if name == step {
					w.raw().FlushAll(w.ctx)
				}
				return nil
			},
		})
		if err := again.Run(w.ctx); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("emptied before %s: %v", step, err)
		}
		w.run()
		w.want("s", 7, 1, 1, 0, 0)
	}
}

// Redis is emptied during the audit at the end of a rebuild.
func TestRedisIsEmptiedDuringTheAudit(t *testing.T) {
	w := newWorld(t)
	w.create("s", 9, 1)
	w.buy("s", "ann")
	hook := &emptier{world: w}
	again := newRebuilder(w.t, rebuild.Config{
		Pinner: pinned{w.guards, testenv.Commands(hook.process)}, Store: w.store, Space: space,
		Pause: w.noPause("during the audit"),
		Step:  func(name string) error { hook.armed = name == "audit"; return nil },
	})
	if err := again.Run(w.ctx); !errors.Is(err, sale.ErrUnavailable) || !hook.done {
		t.Errorf("error %v; emptied: %v", err, hook.done)
	}
	w.run()
	w.want("s", 8, 1, 0, 0, 0)
}

// A rebuild that waits for journals detects that Redis was emptied, and does not delay the next one.
func TestRedisIsEmptiedDuringTheWaitForJournals(t *testing.T) {
	w := newWorld(t)
	w.create("s", 9, 1)
	again := newRebuilder(w.t, rebuild.Config{
		Pinner: w.guards, Store: silent{w.store}, Space: space,
		JournalWait: 2 * time.Minute, Pause: w.noPause("during the wait for journals"),
		Step: func(name string) error {
			if name == "journals" {
				w.raw().FlushAll(w.ctx)
			}
			return nil
		},
	})
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	if err := again.Run(ctx); !errors.Is(err, sale.ErrUnavailable) || ctx.Err() != nil {
		t.Errorf("error %v", err)
	}
}

// Redis is emptied behind the open connections of a worker, which then notices the loss of its lease before its guard
// checks Redis. Without a journal, the worker holds the only copy of the orders.
func TestBatchOfAWorkerSurvivesThatRedisIsEmptied(t *testing.T) {
	for name, settle := range map[string]func(ctx context.Context) error{
		"during the write":                 func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"before the failures are reported": func(context.Context) error { return errors.New("a trigger fails") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 9, 1)
			order := w.buy("s", "ann")
			writes := 0
			lost := lostLeases{make(chan struct{}, 1)}
			ctx, stop := context.WithCancel(w.ctx)
			defer stop()
			work := worker.New(queue.NewList(w.guard.Client(), 0, queue.Config{Lease: 30 * time.Millisecond}),
				storeFunc(func(ctx context.Context, orders []sale.Order) error {
					if writes++; writes > 1 {
						return w.store.Write(ctx, orders)
					}
					w.raw().FlushAll(ctx)
					return settle(ctx)
				}), worker.Config{
					Concurrency: 1, Source: rebuild.NewRestorer(w.guard, w.raw(), 0, w.store), Metrics: lost,
					Log: slog.New(slog.DiscardHandler),
				})
			done := make(chan error)
			go func() { done <- work.Run(ctx) }()
			<-lost.lost
			w.runWithoutJournal()
			stop()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			w.drain()
			if _, err := w.store.Order(w.ctx, order); err != nil {
				t.Errorf("the accepted order: %v", err)
			}
			w.want("s", 8, 0, 1, 0, 0)
		})
	}
}

type storeFunc func(context.Context, []sale.Order) error

func (f storeFunc) Write(ctx context.Context, orders []sale.Order) error { return f(ctx, orders) }

// lostLeases are the metrics of a worker. lost receives when a lease was lost.
type lostLeases struct{ lost chan struct{} }

func (lostLeases) BatchWritten(int, time.Duration) {}
func (lostLeases) Paused(string, int)              {}
func (lostLeases) Failed(string)                   {}
func (m lostLeases) LeaseLost() {
	select {
	case m.lost <- struct{}{}:
	default:
	}
}

func (w *world) noPause(when string) func(context.Context, string, string) error {
	return func(_ context.Context, id, why string) error {
		w.t.Errorf("emptied %s: sale %s was paused: %s", when, id, why)
		return nil
	}
}

// silent is a store with another journal that is never restored.
type silent struct{ *database }

func (silent) Journals(context.Context, int) ([]journal.Status, error) {
	return []journal.Status{{ID: "other"}}, nil
}

// pinned adds a hook to pinned clients.
type pinned struct {
	rebuild.Pinner
	hook redis.Hook
}

func (p pinned) Pin(ctx context.Context, shard keyspace.Shard) (redisconn.Client, string, error) {
	c, id, err := p.Pinner.Pin(ctx, shard)
	if err == nil {
		c.AddHook(p.hook)
	}
	return c, id, err
}

// emptier empties Redis before the first LRANGE after it was armed: after the snapshot of the audit, before it is read.
type emptier struct {
	world       *world
	armed, done bool
}

func (e *emptier) process(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if e.armed && !e.done && cmd.Name() == "lrange" {
		e.done = true
		e.world.raw().FlushAll(ctx)
	}
	return next(ctx, cmd)
}
