package move_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/move"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// A sale that is loaded or removed after the mover read the sales would be left unheld, or move without its data.
func TestSalesOfAHeldShardStay(t *testing.T) {
	w := newWorld(t)
	target := w.other()
	held := admission.NewStock(admission.StockConfig{Client: w.guards.Of(w.shard).Raw(), Space: space})
	loaded := storetest.Sale("", stock)
	for n := 0; loaded.ID == "" || space.ShardOf(loaded.ID) != w.shard; n++ {
		loaded.ID = fmt.Sprint("other-", n)
	}
	none := func(context.Context, spread.Part, func(sale.Order) error) error { return nil }
	w.stopAt = func(step string) error {
		if step == "copy" {
			if err := held.Load(t.Context(), loaded, none); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("a sale was loaded: %v", err)
			}
			if err := held.Remove(t.Context(), sale.Sale{ID: w.id}); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("a sale was removed: %v", err)
			}
		}
		return nil
	}
	if result, err := w.move(target); err != nil || !result.Verified {
		t.Errorf("%+v, %v", result, err)
	}
	w.check(target)
}

// A hold that fails in the middle is released: no rebuild follows.
func TestFailedHoldIsReleased(t *testing.T) {
	w := newWorld(t)
	source := w.owner()
	c, sales, kept := source.Client(), w.shard.Sales(), w.shard.Sales()+":kept"
	w.db.began = func() {
		w.db.began = func() {}
		c.Rename(t.Context(), sales, kept)
		c.Set(t.Context(), sales, "of another type", 0)
	}
	result, err := w.move(w.other())
	if !errors.Is(err, sale.ErrUnavailable) || !strings.Contains(err.Error(), "the shard continues on "+source.Addr) {
		t.Errorf("%+v, %v", result, err)
	}
	c.Rename(t.Context(), kept, sales)
	if !w.verified() {
		t.Error("the shard waits for a rebuild")
	}
	w.unmarked("after a failed hold")
	w.check(source)
	w.rows()
}

// A shard moves and back, without a rebuild: order ids, dead letters, leases and request keys are as before, and
// batches that were leased before are stale.
func TestMoveThereAndBack(t *testing.T) {
	w := newWorld(t)
	source, target := w.owner(), w.other()
	deployment, _, err := w.db.Generation(t.Context(), int(w.shard))
	if err != nil || deployment == 0 {
		t.Fatalf("deployment %x, %v", deployment, err)
	}
	foreign := guard.Owner{Deployment: deployment / 2, Shards: len(space.All())}
	for _, to := range []*testenv.Redis{target, source} {
		before := w.guards.Of(w.shard).Generation()
		batch := w.sell()
		c := w.guards.Of(w.shard).Raw() // verified before its master_replid2 was cleared (guard.SameData)
		followed := c.HGet(t.Context(), w.shard.Guard(), "run_id").Val() + ".f"
		if err := c.HSet(t.Context(), w.shard.Guard(), "run_id", followed).Err(); err != nil {
			t.Fatal(err)
		}
		result, err := w.move(to)
		if err != nil || !result.Verified || result.Keys == 0 || result.To != to.Addr {
			t.Fatalf("%+v, %v", result, err)
		}
		t.Logf("%d keys, held for %v", result.Keys, result.Held)
		testenv.Eventually(t, time.Minute, "the guard trusts the target", w.verified)
		if now := w.guards.Of(w.shard).Generation(); now <= before {
			t.Errorf("generation %d, before %d", now, before)
		}
		err = guard.CheckOwner(t.Context(), w.guards.Of(w.shard).Raw(), w.shard, foreign)
		if _, ok := errors.AsType[*guard.DeploymentError](err); !ok {
			t.Errorf("the target does not record the deployment: %v", err)
		}
		if fence, err := w.guards.Of(w.shard).RestoreFence(t.Context()); err != nil || fence == 0 {
			t.Errorf("orders of journals and stale batches cannot be restored: %v, %v", fence, err)
		}
		stale := store.WithGeneration(t.Context(), int(w.shard), before)
		if err := w.db.Write(stale, batch.Messages); !errors.Is(err, store.ErrStale) {
			t.Errorf("a batch that was leased before the move: %v", err)
		}
		if acked, err := w.queue.Ack(t.Context(), batch.ID); err != nil {
			t.Errorf("the lease is not on the target: %v, %v", acked, err)
		} else if err := w.db.Write(t.Context(), batch.Messages); err != nil {
			t.Fatal(err)
		}
		w.check(to)
	}
	if result, err := w.move(source); err != nil || result.From != result.To || result.Keys != 0 {
		t.Errorf("a move to the same master: %+v, %v", result, err)
	}
}

// If the target fails during the copy, or has another content after it, the shard continues on the source without a
// rebuild.
func TestMoveIsAbandoned(t *testing.T) {
	for name, c := range map[string]struct {
		step string
		do   func(w *world, target *testenv.Redis)
	}{
		"the target was killed":  {"copy", func(_ *world, target *testenv.Redis) { target.Kill() }},
		"needs longer than 1.5s": {"copy", func(_ *world, target *testenv.Redis) { target.Pause() }},
		"the target was emptied": {"verify", func(_ *world, target *testenv.Redis) {
			target.Client().FlushAll(context.Background())
		}},
		"an order is missing": {"verify", func(w *world, target *testenv.Redis) {
			onImporter(w.t, target, "LPOP", w.shard.Ready())
		}},
		"a request key is missing": {"verify", func(w *world, target *testenv.Redis) {
			onImporter(w.t, target, "DEL", w.shard.Dedup("buyer-0", "buyer-0"))
		}},
		"a key too many": {"verify", func(w *world, target *testenv.Redis) {
			onImporter(w.t, target, "LPUSH", w.shard.Batch("b"), "x")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			source, target := w.owner(), w.other()
			w.stopAt = func(step string) error {
				if step == c.step {
					c.do(w, target)
				}
				return nil
			}
			result, err := w.move(target)
			if err == nil || !strings.Contains(err.Error(), "the shard continues on "+source.Addr) {
				t.Errorf("%+v, %v", result, err)
			}
			if target.Paused() {
				target.Resume()
				if err == nil || !strings.Contains(err.Error(), name) {
					t.Errorf("the move failed with %v, want %q", err, name)
				}
			}
			if !w.verified() {
				t.Error("the shard waits for a rebuild")
			}
			w.check(source)
			w.rows()
			if !target.Running() {
				target.Start()
			} else if name != "needs longer than 1.5s" { // else the next move ends the import
				w.unmarked("abandoned")
			}
			w.stopAt = func(string) error { return nil }
			testenv.Eventually(t, time.Minute, "the move succeeds afterwards", func() bool {
				_, err := w.move(target)
				return err == nil
			})
			w.check(target)
		})
	}
}

// A move does not need the database while the shard is held.
func TestMoveEndsWithoutTheDatabase(t *testing.T) {
	w := newWorld(t)
	target := w.other()
	w.stopAt = func(step string) error {
		if step != "hold" {
			w.db.away = fmt.Errorf("store: %w", sale.ErrUnavailable)
		}
		return nil
	}
	if result, err := w.move(target); err != nil || !result.Verified {
		t.Fatalf("%+v, %v", result, err)
	}
	w.db.away = nil
	w.check(target)
	w.rows()
	w.unmarked("moved")
}

// If the generation begins and the database does not confirm it, a backend rebuilds the shard, which was not held.
func TestUnconfirmedGenerationIsRebuilt(t *testing.T) {
	w := newWorld(t)
	source := w.owner()
	w.db.lost = true
	if result, err := w.move(w.other()); !errors.Is(err, sale.ErrUnavailable) || slices.Contains(w.steps, "copy") {
		t.Errorf("%+v, %v after %v", result, err, w.steps)
	}
	w.db.lost = false
	w.unmarked("not moved")
	w.recover()
	w.check(source)
	w.rows()
}

// An interrupted move left its fence on the target, and the database was restored from an older backup since.
func TestFenceIsAboveThatOfTheTarget(t *testing.T) {
	w := newWorld(t)
	target := w.other()
	w.stopAt = func(step string) error {
		if step == "copy" {
			return errKilled
		}
		return nil
	}
	if _, err := w.move(target); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.stopAt = func(string) error { return nil }
	onImporter(t, target, "HSET", w.shard.Guard(), "fence", "1000")
	w.recover()
	testenv.Eventually(t, time.Minute, "the locks expire", func() bool {
		result, err := w.move(target)
		if err != nil && !errors.Is(err, guard.ErrBusy) {
			t.Fatal(err)
		}
		return err == nil && result.Verified
	})
	w.check(target)
}

// The shard is held while the move deletes what an earlier move left, which is listed once and not for each part.
func TestMoveListsLeftKeysOnce(t *testing.T) {
	w := newWorld(t)
	source, target := w.owner(), w.other()
	slot := w.cluster.Slot(w.shard.Guard())
	if err := target.Client().Do(t.Context(), "CLUSTER", "SETSLOT", slot, "IMPORTING",
		source.Client().Do(t.Context(), "CLUSTER", "MYID").Val()).Err(); err != nil {
		t.Fatal(err)
	}
	left := target.Client().Pipeline()
	for n := range 5000 {
		left.Do(t.Context(), "ASKING")
		left.Set(t.Context(), w.shard.Dedup("left", fmt.Sprint(n)), "x", 0)
	}
	if _, err := left.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	target.Client().ConfigResetStat(t.Context())
	if result, err := w.move(target); err != nil || !result.Verified {
		t.Fatalf("%+v, %v", result, err)
	}
	stats := target.Client().InfoMap(t.Context(), "commandstats").Item("Commandstats", "cmdstat_cluster|getkeysinslot")
	if calls, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ","); calls != "3" { // before, after, to verify
		t.Errorf("the keys of the target were listed %s times", calls)
	}
	w.check(target)
}

// A move that finds another one in progress does not end the import of that one.
func TestBusyMoveKeepsTheMarkOfAnother(t *testing.T) {
	w := newWorld(t)
	source, target := w.owner(), w.other()
	var second error
	w.stopAt = func(step string) error {
		if step == "hold" {
			w.stopAt = func(string) error { return nil }
			_, second = w.move(target)
		}
		return nil
	}
	if result, err := w.move(target); err != nil || !result.Verified || result.From != source.Addr {
		t.Errorf("%+v, %v", result, err)
	}
	if !errors.Is(second, guard.ErrBusy) {
		t.Errorf("the second move: %v, want %v", second, guard.ErrBusy)
	}
	w.unmarked("moved")
	w.check(target)
}

// A move that cannot be done changes nothing, and its error has the remedy.
func TestMoveIsRefused(t *testing.T) {
	w := newWorld(t)
	ctx, source, target := t.Context(), w.owner(), w.other()
	refused := func(when, want string) {
		t.Helper()
		w.steps = nil
		_, err := w.move(target)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", when, err, want)
		}
		if slices.Contains(w.steps, "copy") {
			t.Errorf("%s: the move began", when)
		}
	}
	real := target
	target = &testenv.Redis{Addr: "127.0.0.1:1"}
	refused("an address outside the cluster", "is not a node of the cluster: use an address of CLUSTER NODES")
	target = real

	foreign := fmt.Sprintf("{%d}:other", w.shard)
	source.Client().Set(ctx, foreign, "x", 0)
	refused("another key in the slot", "slot "+fmt.Sprint(w.cluster.Slot(foreign))+" also has the key "+foreign)
	source.Client().Del(ctx, foreign)

	source.Client().Set(ctx, w.shard.RebuildLock(), "another process", time.Minute)
	refused("a rebuild in progress", guard.ErrBusy.Error())
	w.unmarked("a rebuild in progress")
	source.Client().Del(ctx, w.shard.RebuildLock())
	w.check(source)

	away := fmt.Errorf("store: %w", sale.ErrUnavailable)
	for step, mark := range map[string]func(){
		"fence": func() { w.db.away = away },
		"hold":  func() { w.stopAt = func(string) error { w.db.away = away; return nil } },
	} {
		mark()
		refused("no database at the "+step, sale.ErrUnavailable.Error())
		w.db.away, w.stopAt = nil, func(string) error { return nil }
		w.unmarked("no database at the " + step)
		if !w.verified() {
			t.Errorf("no database at the %s: the shard waits for a rebuild", step)
		}
		w.check(source)
		w.rows()
	}

	source.Client().HSet(ctx, w.shard.Guard(), "run_id", "another server")
	refused("not verified", "wait until a backend has rebuilt it")
	w.recover()
	w.check(source)

	// as in the database of another deployment with the same sales, or after a move that failed at the hold
	later, err := w.db.NextFence(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.db.BeginGeneration(ctx, int(w.shard), later); err != nil {
		t.Fatal(err)
	}
	refused("a later generation in SQL", "wait until a backend has rebuilt it")
	if _, now, err := w.db.Generation(ctx, int(w.shard)); err != nil || now != later {
		t.Errorf("generation %d after a move that was refused, want %d; %v", now, later, err)
	}
	w.recover()
	w.check(source)

	single, err := redisconn.NewServer("redis://" + source.Addr)
	if err != nil {
		t.Fatal(err)
	}
	m, err := move.New(move.Config{Server: single, Store: w.db, Space: space})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Move(ctx, w.shard, target.Addr); err == nil || !strings.Contains(err.Error(), "redis+cluster://") {
		t.Errorf("one Redis: %v", err)
	}
	if _, err := move.New(move.Config{}); err == nil {
		t.Error("a Mover without a server")
	}
}

func TestTargetThatFailsBeforeItsReplicasAreAwaited(t *testing.T) {
	gone := testenv.NewOnceClient(testenv.FreeAddress(t))
	t.Cleanup(func() { _ = gone.Close() })
	if err := move.AwaitReplicas(t.Context(), gone); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("%v, want %v", err, sale.ErrUnavailable)
	}
}

// A mover can be suspended between the comparison of its fence and the copy.
func TestMigrateIsFenced(t *testing.T) {
	c, shard := testenv.StartRedis(t).Client(), keyspace.Shard(0)
	hold := func(fence int64) { c.HSet(t.Context(), shard.Guard(), "fence", fence, "rebuilding", fence) }
	release := func() { hold(2); c.HDel(t.Context(), shard.Guard(), "rebuilding") }
	none := func() {}
	for name, m := range map[string]struct {
		before, suspended func()
		want              error
	}{
		"held":                       {func() { hold(2) }, none, nil},
		"held by a later move":       {func() { hold(3) }, none, guard.ErrFenced},
		"held by a later move since": {func() { hold(2) }, func() { hold(3) }, guard.ErrFenced},
		"released":                   {release, none, guard.ErrFenced},
		"moved":                      {func() { c.FlushAll(t.Context()) }, none, guard.ErrFenced},
		"moved since":                {func() { hold(2) }, func() { c.FlushAll(t.Context()) }, guard.ErrFenced},
	} {
		m.before()
		err := move.Migrate(t.Context(), c, shard, 2, m.suspended, "SET", "copy", "x")
		if n := c.Del(t.Context(), "copy").Val(); !errors.Is(err, m.want) || (n == 1) != (m.want == nil) {
			t.Errorf("%s: %v, want %v; copied %d keys", name, err, m.want, n)
		}
	}
	hold(2)
	if err := move.Migrate(t.Context(), c, shard, 2, none, "SET", "copy"); !redis.HasErrorPrefix(err, "wrong number") {
		t.Errorf("%v, want the reason for which Redis has rejected the command", err)
	}
}
