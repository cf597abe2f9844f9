package rebuild_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/admission/admissiontest"
	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

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

// The database cannot be written any longer when it has the report that a journal is being restored.
func TestRebuildEndsWhileTheDatabaseIsReadOnly(t *testing.T) {
	w := newWorld(t)
	w.fill("s")
	r := newRebuilder(t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space, Journals: rebuild.JournalWriters{w.writer},
		Step: func(name string) error {
			if name != "journals" {
				return nil
			}
			fence, err := w.guard.RestoreFence(w.ctx)
			if err == nil {
				err = w.store.Heartbeat(w.ctx, w.journal.ID(), 0, -fence)
			}
			w.restoreJournal()
			return err
		},
	})
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	if err := r.RunIf(ctx, 0, func(context.Context) bool { return true }); err != nil {
		t.Fatal(err)
	}
}
