package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// owned returns a world with a deployment that owns its Redis, a sale of five units and an order.
func owned(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	if _, _, err := w.store.ClaimDeployment(w.ctx, shards); err != nil {
		t.Fatal(err)
	}
	w.create("s", 5, 1)
	w.run()
	w.buy("s", "ann")
	return w
}

// other is a process with a database of its own on the Redis of a world.
type other struct {
	db      *database
	guards  *guard.Shards
	rebuild *rebuild.Rebuilder
}

func newOther(t *testing.T, w *world, pinner func(*guard.Shards) rebuild.Pinner) other {
	t.Helper()
	db := openDatabase(t, storetest.SQLite(t))
	if _, _, err := db.ClaimDeployment(w.ctx, shards); err != nil {
		t.Fatal(err)
	}
	guards := openGuards(t, w.redis.URL, space)
	return other{db, guards, newRebuilder(t, rebuild.Config{Pinner: pinner(guards), Store: db, Space: space})}
}

func plainPinner(g *guard.Shards) rebuild.Pinner { return g }

// unverified rebuilds the shard unless its data is verified, as a backend does.
func (o other) unverified(ctx context.Context) error {
	return o.rebuild.RunIf(ctx, 0, func(ctx context.Context) bool {
		_ = o.guards.Of(0).Check(ctx, o.db)
		_, ok := o.guards.Of(0).Verified()
		return !ok
	})
}

// wantUnchanged compares the keys of Redis, except the lock of the rebuild.
func wantUnchanged(t *testing.T, w *world, before map[string]string) {
	t.Helper()
	after := w.copyOf()
	for _, keys := range []map[string]string{before, after} {
		delete(keys, keyspace.Shard(0).RebuildLock())
	}
	if !maps.Equal(before, after) {
		t.Errorf("Redis of another deployment has changed:\n%v\n%v", before, after)
	}
}

// A journal and a stale batch of a worker hold orders that are not rows. They are not restored in the Redis of another
// deployment, and the journal does not count as restored.
func TestOrdersAreNotRestoredInRedisOfAnotherDeployment(t *testing.T) {
	w := owned(t)
	o := newOther(t, w, plainPinner)
	if _, err := o.db.CreateSale(w.ctx, storetest.Sale("s", 5)); err != nil { // of the same name
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	j, err := journal.Open(t.TempDir(), journal.Config{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	g := o.guards.Of(0)
	restorer := rebuild.NewRestorer(g, g.Raw(), 0, o.db)
	writer := newWriter(rebuild.JournalWriterConfig{Journal: j, Store: o.db, Restorer: restorer})
	orders := []sale.Order{{ID: 1000, SaleID: "s", Buyer: "ben", Slot: 1}, {ID: 1001, SaleID: "s", Buyer: "cem", Slot: 1}}
	writer.Record(1, orders)
	if err := g.Check(w.ctx, o.db); err != nil {
		t.Fatal(err)
	}
	before := w.copyOf()
	writer.RunOnce(w.ctx)
	if _, err := restorer.RestoreOrders(w.ctx, orders); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("a stale batch: %v, want ErrUnavailable", err)
	}
	wantUnchanged(t, w, before)
	if writer.Restored() != 0 {
		t.Errorf("the journal counts as restored at fence %d of another deployment", writer.Restored())
	}
}

// afterOwnerPinner pins clients that call do once after the owner of the data was read.
type afterOwnerPinner struct {
	*guard.Shards
	do func()
}

func (p afterOwnerPinner) Pin(ctx context.Context, shard keyspace.Shard) (redisconn.Client, string, error) {
	c, id, err := p.Shards.Pin(ctx, shard)
	if err == nil {
		do := sync.OnceFunc(p.do)
		c.AddHook(testenv.Commands(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if cmd.Name() == "hgetall" { // of the guard
				do()
			}
			return err
		}))
	}
	return c, id, err
}

// Two deployments find the same Redis empty. The first that begins a rebuild owns it, whatever the second has read.
func TestFirstRebuildOfAnEmptyRedisOwnsIt(t *testing.T) {
	w := owned(t)
	w.raw().FlushAll(w.ctx)
	var before map[string]string
	o := newOther(t, w, func(g *guard.Shards) rebuild.Pinner {
		return afterOwnerPinner{g, func() {
			w.run()
			before = w.copyOf()
		}}
	})
	if _, foreign := errors.AsType[*guard.DeploymentError](o.unverified(w.ctx)); !foreign {
		t.Error("the automatic rebuild of the other deployment did not return a DeploymentError")
	}
	wantUnchanged(t, w, before)
	w.check()
	if reason, ok := w.guard.Verified(); !ok {
		t.Errorf("the owner has lost its Redis: %s", reason)
	}
}

// A rebuild of the first deployment is suspended before it begins, longer than its lock, while an admin lets the second
// take the data over. The first does not take it back, neither with a higher fence nor with the same one.
func TestSuspendedRebuildTakesNothingBack(t *testing.T) {
	for name, above := range map[string]int64{"higher fence": 1000, "same fence": 0} {
		t.Run(name, func(t *testing.T) {
			testenv.Eventually(t, time.Minute, "a rebuild that was refused before it noticed that its lock was lost",
				func() bool { return suspendRebuild(t, above) })
		})
	}
}

// suspendRebuild reports whether the suspended rebuild was refused for its deployment. On a slow machine it may notice
// first that it has lost its lock. In both cases it changes nothing.
func suspendRebuild(t *testing.T, above int64) (refused bool) {
	w := owned(t)
	o := newOther(t, w, plainPinner)
	if _, err := w.store.NextFence(w.ctx, above); err != nil {
		t.Fatal(err)
	}
	var before map[string]string
	suspended := newRebuilder(t, rebuild.Config{
		Pinner: w.guards, Store: w.store, Space: space, Step: func(step string) error {
			if step == "begin" {
				err := guard.ErrBusy
				for errors.Is(err, guard.ErrBusy) { // the suspended rebuild may renew its lock before the other one has it
					w.raw().Del(w.ctx, keyspace.Shard(0).RebuildLock())
					err = o.rebuild.Run(w.ctx)
				}
				if err != nil {
					t.Error(err)
				}
				before = w.copyOf()
			}
			return nil
		},
	})
	err := suspended.RunIf(w.ctx, 0, func(context.Context) bool { return true })
	_, refused = errors.AsType[*guard.DeploymentError](err)
	if !refused && !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("the suspended rebuild: %v, want a DeploymentError", err)
	}
	wantUnchanged(t, w, before)
	if err := o.guards.Of(0).Check(w.ctx, o.db); err != nil {
		t.Fatal(err)
	}
	if reason, ok := o.guards.Of(0).Verified(); !ok {
		t.Errorf("the new owner has lost the data: %s", reason)
	}
	return refused
}

// Two deployments number their rebuilds independently. A rebuild that would take data over is suspended before it
// begins, while the owner rebuilds with the same fence: it does not begin with a fence that is not higher.
func TestTakeOverNeedsAHigherFence(t *testing.T) {
	w := owned(t)
	o := newOther(t, w, plainPinner)
	var before map[string]string
	suspended := newRebuilder(t, rebuild.Config{
		Pinner: o.guards, Store: o.db, Space: space, Step: func(step string) error {
			if step == "begin" && before == nil {
				w.raw().Del(w.ctx, keyspace.Shard(0).RebuildLock())
				w.run()
				before = w.copyOf()
			}
			return nil
		},
	})
	if err := suspended.Run(w.ctx); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("the suspended rebuild: %v, want ErrUnavailable", err)
	}
	wantUnchanged(t, w, before)
	fence, err := o.db.NextFence(w.ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if of := w.raw().HGet(w.ctx, keyspace.Shard(0).Guard(), "fence").Val(); of != fmt.Sprint(fence-1) {
		t.Errorf("the owner rebuilt with fence %s, and the test needs that of the other deployment, %d", of, fence-1)
	}
}

// heartbeats are the reads of a guard from SQL, one for each check of verified data.
type heartbeats struct {
	guard.Generations
	begun chan struct{}
}

func (h heartbeats) Generation(ctx context.Context, shard int) (int64, int64, error) {
	select {
	case h.begun <- struct{}{}:
	default:
	}
	return h.Generations.Generation(ctx, shard)
}

// When a takeover ends, the guards of the former owner have blocked its purchases. It begins just after a heartbeat. A
// busy machine may delay the next one: then the owner takes the data back, and the test begins again.
func TestTakeOverEndsWhenTheFormerOwnerIsBlocked(t *testing.T) {
	w := owned(t)
	o := newOther(t, w, plainPinner)
	ctx, stop := context.WithCancel(w.ctx)
	ended, begun := make(chan error, 1), make(chan struct{})
	go func() { ended <- w.guard.Run(ctx, heartbeats{w.store, begun}, nil) }()
	defer func() { stop(); <-ended }()
	for attempt := 1; ; attempt++ {
		testenv.Eventually(t, time.Minute, "the data is verified", func() bool {
			<-begun
			<-begun // an interval after the first one
			return w.guard.Client().Ping(w.ctx).Err() == nil
		})
		if err := o.rebuild.Run(w.ctx); err != nil {
			t.Fatal(err)
		}
		err := w.guard.Client().Ping(w.ctx).Err()
		if errors.Is(err, guard.ErrUnverified) {
			return
		}
		if attempt == 5 {
			t.Fatalf("a command of the former owner after each takeover: %v, want ErrUnverified", err)
		}
		w.run()
	}
}

// A takeover waits for two heartbeats of the former owner before it reads anything, whatever happened before.
func TestTakeOverAwaitsTheFormerOwner(t *testing.T) {
	for name, c := range map[string]struct {
		before  func(*world, other)
		changed func(*world) // after the owner was read
	}{
		"the former owner is there": {},
		"an earlier takeover was interrupted": {before: func(w *world, o other) {
			ctx, kill := context.WithCancel(w.ctx)
			begun := newRebuilder(t, rebuild.Config{
				Pinner: o.guards, Store: o.db, Space: space, Changed: func(context.Context, keyspace.Shard) { kill() },
			})
			if err := begun.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Fatalf("the rebuild was not interrupted: %v", err)
			}
		}},
		"Redis is emptied before it begins": {changed: func(w *world) { w.raw().FlushAll(w.ctx) }},
		"the guard was deleted by hand": {before: func(w *world, _ other) {
			w.raw().Del(w.ctx, keyspace.Shard(0).Guard())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := owned(t)
			o := newOther(t, w, plainPinner)
			if c.before != nil {
				c.before(w, o)
			}
			pinner := afterOwnerPinner{o.guards, func() {
				if c.changed != nil {
					c.changed(w)
				}
			}}
			var began time.Time
			var waited time.Duration
			r := newRebuilder(t, rebuild.Config{
				Pinner: pinner, Store: o.db, Space: space,
				Changed: func(context.Context, keyspace.Shard) { began = time.Now() },
				Step: func(step string) error {
					if step == "fence" {
						waited = time.Since(began)
					}
					return nil
				},
			})
			if err := r.Run(w.ctx); err != nil {
				t.Fatal(err)
			}
			if waited < 2*guard.Heartbeat {
				t.Errorf("the takeover waited for %v after it began", waited)
			}
		})
	}
}

// A worker and a backend of the former owner continue on open connections, because their guards have not yet checked.
// The worker takes no order of the new owner, and the backend loads no sale that the new owner does not have.
func TestFormerOwnerTakesNoOrder(t *testing.T) {
	for _, c := range []struct {
		name                    string
		registered, withoutMark bool
	}{
		{"consumer", true, false}, {"new consumer", false, false}, {"guard deleted by hand", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := owned(t)
			if err := w.guards.Check(w.ctx, w.store); err != nil {
				t.Fatal(err)
			}
			ben := w.buy("s", "ben")
			open := func(g *guard.Shards) *queue.List {
				return queue.NewList(w.raw(), 0, queue.Config{Deployment: g.Deployment})
			}
			former, consumer := open(w.guards), queue.Consumer("former-1")
			if c.registered {
				var err error
				if consumer, err = former.Register(w.ctx, "former"); err != nil {
					t.Fatal(err)
				}
			}
			o := newOther(t, w, plainPinner)
			if _, err := o.db.CreateSale(w.ctx, storetest.Sale("s", 5)); err != nil { // of the same name
				t.Fatal(err)
			}
			if c.withoutMark {
				w.raw().Del(w.ctx, keyspace.Shard(0).Guard())
			}
			if err := o.rebuild.Run(w.ctx); err != nil {
				t.Fatal(err)
			}
			if err := o.guards.Check(w.ctx, o.db); err != nil {
				t.Fatal(err)
			}
			if _, _, err := former.TakeAs(w.ctx, consumer.BatchID(1), 10, ""); !errors.Is(err, queue.ErrUnregistered) {
				t.Errorf("a consumer of the former owner: %v, want ErrUnregistered", err)
			}
			if _, err := former.Register(w.ctx, "former2"); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("a registration of the former owner: %v, want ErrUnavailable", err)
			}
			stock := admission.NewStock(admission.StockConfig{Client: w.raw(), Space: space, Deployment: w.guards.Deployment})
			other := storetest.Sale("other", 5)
			if err := stock.Load(w.ctx, other, w.store.OrdersOf); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("a sale of the former owner: %v, want ErrUnavailable", err)
			}
			eve := func(_ context.Context, _ spread.Part, yield func(sale.Order) error) error {
				return yield(sale.Order{ID: ben, SaleID: "other", Buyer: "eve", Slot: 1, Serial: 1})
			}
			if err := stock.Load(w.ctx, other, eve); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("a sale of the former owner with a buyer: %v, want ErrUnavailable", err)
			}
			if w.raw().Exists(w.ctx, keyspace.Shard(0).Sale("other"), keyspace.Shard(0).Buyers("other")).Val() != 0 {
				t.Error("a sale of the former owner, or its buyers, were loaded")
			}
			restocked := storetest.Sale("s", 50)
			restocked.Version = 1000
			if err := stock.Update(w.ctx, restocked); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("a restock of the former owner: %v, want ErrUnavailable", err)
			}
			orders := []sale.Order{{ID: ben, SaleID: "s", Buyer: "ben", Slot: 1}}
			if _, err := stock.ReturnUnits(w.ctx, spread.Part{SaleID: "s"}, orders); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("a return of the former owner: %v, want ErrUnavailable", err)
			}
			if err := stock.Remove(w.ctx, storetest.Sale("s", 5)); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("a removal by the former owner: %v, want ErrUnavailable", err)
			}
			if left := w.raw().Get(w.ctx, keyspace.Shard(0).Stock("s")).Val(); left != "3" {
				t.Errorf("%s units left, want 3", left)
			}
			if b, _, err := queuetest.Take(w.ctx, open(o.guards), 10, ""); err != nil || len(b.Messages) != 2 {
				t.Errorf("the new owner took %v, %v, want both orders", b.Messages, err)
			}
		})
	}
}

// A process of the former owner has begun to cancel a dead letter, and its guard has not yet checked. It neither
// finishes the cancellation nor retries or cancels a letter of the new owner.
func TestFormerOwnerChangesNoDeadLetter(t *testing.T) {
	w := owned(t)
	w.check()
	ann, ben := w.kill("s"), w.buy("s", "ben")
	if w.kill("s") != ben {
		t.Fatal("ben's order is not a dead letter")
	}
	former := queue.NewList(w.raw(), 0, queue.Config{Deployment: w.guards.Deployment})
	if _, err := former.BeginCancel(w.ctx, ben); err != nil {
		t.Fatal(err)
	}
	o := newOther(t, w, plainPinner)
	if _, err := o.db.CreateSale(w.ctx, storetest.Sale("s", 5)); err != nil { // of the same name
		t.Fatal(err)
	}
	if err := o.rebuild.Run(w.ctx); err != nil {
		t.Fatal(err)
	}
	before := w.copyOf()
	if err := former.FinishCancel(w.ctx, ben, true); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("the end of a cancellation: %v, want ErrUnavailable", err)
	}
	if _, err := former.BeginCancel(w.ctx, ann); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("the beginning of a cancellation: %v, want ErrUnavailable", err)
	}
	if err := former.RetryDead(w.ctx, ann); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("a retry: %v, want ErrUnavailable", err)
	}
	wantUnchanged(t, w, before)
}

// A rebuild is suspended after it has begun. Redis is emptied, and another deployment rebuilds it with the same fence.
// Nothing of the first rebuild reaches the data of the other deployment, and neither does a restored order.
func TestRebuildOfAnotherDeploymentWithTheSameFence(t *testing.T) {
	for _, step := range []string{"suspend", "sales", "swap", "resume", "finish"} {
		t.Run(step, func(t *testing.T) {
			w := owned(t)
			o := newOther(t, w, plainPinner)
			if _, err := o.db.CreateSale(w.ctx, storetest.Sale("s", 9)); err != nil { // of the same name
				t.Fatal(err)
			}
			var before map[string]string
			suspended := newRebuilder(t, rebuild.Config{
				Pinner: w.guards, Store: w.store, Space: space, Step: func(at string) error {
					if at != step {
						return nil
					}
					fence, err := strconv.ParseInt(w.raw().HGet(w.ctx, keyspace.Shard(0).Guard(), "fence").Val(), 10, 64)
					if err != nil {
						return err
					}
					w.raw().FlushAll(w.ctx)
					_, err = o.db.NextFence(w.ctx, fence-2)
					if err = errors.Join(err, o.unverified(w.ctx)); err != nil {
						return err
					}
					if before = w.copyOf(); w.raw().HGet(w.ctx, keyspace.Shard(0).Guard(), "fence").Val() != fmt.Sprint(fence) {
						return errors.New("the fences differ")
					}
					return nil
				},
			})
			if err := suspended.Run(w.ctx); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("the suspended rebuild: %v, want ErrUnavailable", err)
			}
			restorer := rebuild.NewRestorer(w.guard, w.raw(), 0, w.store)
			fence := w.raw().HGet(w.ctx, keyspace.Shard(0).Guard(), "fence").Val()
			number, err := strconv.ParseInt(fence, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			lost := []sale.Order{{ID: 1000, SaleID: "s", Buyer: "ben", Slot: 1}}
			if done, err := restorer.RestoreAt(w.ctx, number, lost); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("restored %+v, %v, want ErrUnavailable", done, err)
			}
			wantUnchanged(t, w, before)
		})
	}
}

// A rebuild that takes data over owns it from its beginning: if it is interrupted, the next automatic rebuild of the
// same deployment finishes it, and the former owner changes nothing.
func TestInterruptedTakeOverIsFinishedByTheNewOwner(t *testing.T) {
	w := owned(t)
	o := newOther(t, w, plainPinner)
	interrupted := newRebuilder(t, rebuild.Config{
		Pinner: o.guards, Store: o.db, Space: space, Step: func(step string) error {
			if step == "count" {
				return errors.New("the process has ended")
			}
			return nil
		},
	})
	if err := interrupted.Run(w.ctx); err == nil {
		t.Fatal("the rebuild was not interrupted")
	}
	before := w.copyOf()
	err := w.rebuild.RunIf(w.ctx, 0, func(context.Context) bool { return true })
	if _, foreign := errors.AsType[*guard.DeploymentError](err); !foreign {
		t.Errorf("an automatic rebuild of the former owner: %v, want a DeploymentError", err)
	}
	wantUnchanged(t, w, before)
	if err := o.unverified(w.ctx); err != nil {
		t.Fatal(err)
	}
	if err := o.guards.Of(0).Check(w.ctx, o.db); err != nil {
		t.Fatal(err)
	}
	if reason, ok := o.guards.Of(0).Verified(); !ok {
		t.Errorf("the new owner cannot sell: %s", reason)
	}
}

// Data without a valid id belongs to no deployment that is known. Only an admin makes it that of this one. In the test,
// N stands for the valid id.
func TestDataWithoutADeploymentIsNotUsed(t *testing.T) {
	for _, id := range []string{"", "x", "1.5", "0x10", "0N", "9999999999999999999", "99999999999999999999999"} {
		t.Run(fmt.Sprintf("%q", id), func(t *testing.T) {
			w := owned(t)
			if id == "" {
				w.raw().HDel(w.ctx, keyspace.Shard(0).Guard(), "deployment")
			} else {
				id = strings.Replace(id, "N", fmt.Sprint(w.guard.Deployment()), 1)
				w.raw().HSet(w.ctx, keyspace.Shard(0).Guard(), "deployment", id)
			}
			w.check()
			if _, ok := w.guard.Verified(); ok {
				t.Error("the data is verified")
			}
			before := w.copyOf()
			err := w.rebuild.RunIf(w.ctx, 0, func(context.Context) bool { return true })
			if _, foreign := errors.AsType[*guard.DeploymentError](err); !foreign {
				t.Errorf("an automatic rebuild: %v, want a DeploymentError", err)
			}
			wantUnchanged(t, w, before)
			if err := w.rebuild.Run(w.ctx); err != nil {
				t.Errorf("a rebuild of all sales: %v", err)
			}
			w.check()
			if reason, ok := w.guard.Verified(); !ok {
				t.Errorf("after a rebuild of all sales: %s", reason)
			}
			w.audit("s")
		})
	}
}

// A database that has lost its id owns no data that has one.
func TestDatabaseWithoutADeploymentRebuildsNothing(t *testing.T) {
	w := owned(t)
	o := other{db: openDatabase(t, storetest.SQLite(t)), guards: openGuards(t, w.redis.URL, space)}
	o.rebuild = newRebuilder(t, rebuild.Config{Pinner: o.guards, Store: o.db, Space: space})
	before := w.copyOf()
	if err := o.rebuild.RunIf(w.ctx, 0, func(context.Context) bool { return true }); err == nil {
		t.Error("an automatic rebuild succeeded")
	}
	wantUnchanged(t, w, before)
}
