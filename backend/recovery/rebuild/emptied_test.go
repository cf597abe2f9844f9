package rebuild_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
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
		Pinner: pinned{w.guards, hook}, Store: w.store, Space: space,
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

func (p pinned) Pin(ctx context.Context, shard keyspace.Shard) (*redis.Client, string, error) {
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

func (*emptier) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*emptier) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (e *emptier) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if e.armed && !e.done && cmd.Name() == "lrange" {
			e.done = true
			e.world.raw().FlushAll(ctx)
		}
		return next(ctx, cmd)
	}
}
