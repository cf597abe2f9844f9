package move_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/admission/admissiontest"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/journal"
	"sluice/backend/recovery/move"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	redisscript "sluice/lua/redis"
	"sluice/test/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

var (
	space = keyspace.Space{Shards: 16}
	quiet = slog.New(slog.DiscardHandler)
)

// world is a cluster of three masters, a database, one sale with queued orders, and a backend.
type world struct {
	t       *testing.T
	cluster *testenv.RedisCluster
	server  *redisconn.Server
	db      *database
	guards  *guard.Shards
	stock   *admission.Stock
	admit   *admission.Admitter
	queue   *queue.List
	rebuild *rebuild.Rebuilder
	id      string // of the sale
	shard   keyspace.Shard
	orders  map[string]sale.OrderID // by buyer
	stopAt  func(step string) error // called before each step of a move
	lock    time.Duration           // of the next move, if not 0
	steps   []string
	ctx     context.Context // of moves
}

// database is the order store and the registry of journals.
type database struct {
	*store.Store
	*journal.Registry
	away error // of every call of a move; nil if the database responds
	lost bool  // BeginGeneration commits, and its result is lost
	// began is called when BeginGeneration has committed
	began func()
	read  func() // called before Generation
}

func (d *database) Generation(ctx context.Context, shard int) (deployment, generation int64, err error) {
	d.read()
	return d.Store.Generation(ctx, shard)
}

func (d *database) NextFence(ctx context.Context, above int64) (int64, error) {
	if d.away != nil {
		return 0, d.away
	}
	return d.Store.NextFence(ctx, above)
}

func (d *database) BeginGeneration(ctx context.Context, shard int, fence int64) error {
	if d.away != nil {
		return d.away
	}
	err := d.Store.BeginGeneration(ctx, shard, fence)
	d.began()
	if d.lost {
		err = fmt.Errorf("store: %w", sale.ErrUnavailable)
	}
	return err
}

const stock = 1000

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, testenv.StartRedisMasters(t, 3))
}

func newWorldOn(t *testing.T, cluster *testenv.RedisCluster) *world {
	t.Helper()
	redisconn.Quiet(quiet)
	tables := storetest.Open(t, storetest.SQLite(t))
	w := &world{
		t: t, cluster: cluster, id: "s",
		db:     &database{tables, journal.NewRegistry(tables.DB), nil, false, func() {}, func() {}},
		orders: map[string]sale.OrderID{}, stopAt: func(string) error { return nil }, ctx: t.Context(),
	}
	w.shard = space.ShardOf(w.id)
	if _, _, err := w.db.ClaimDeployment(t.Context(), len(space.All())); err != nil {
		t.Fatal(err)
	}
	server, err := redisconn.NewServer(w.cluster.URL)
	if err != nil {
		t.Fatal(err)
	}
	w.server = server
	w.guards = guard.Open(guard.Config{Server: server, Space: space, Log: quiet})
	t.Cleanup(func() { _ = w.guards.Close() })
	w.rebuild, err = rebuild.New(rebuild.Config{
		Pinner: w.guards, Store: w.db, Space: space, JournalWait: time.Millisecond, Log: quiet,
		Pause: func(_ context.Context, id, reason string) error {
			t.Errorf("sale %s was paused: %s", id, reason)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.recover()
	w.stock = admission.NewStock(admission.StockConfig{
		Client: w.guards.Client(), Space: space, Deployment: w.guards.Deployment,
		Server: func(shard keyspace.Shard) *redis.Client { return w.guards.Of(shard).Client() },
	})
	w.admit = admissiontest.NewAdmitter(t, w.guards.Client(), space)
	w.queue = queue.NewList(w.guards.Of(w.shard).Client(), w.shard, queue.Config{})
	s, err := w.db.CreateSale(t.Context(), storetest.Sale(w.id, stock))
	if err != nil {
		t.Fatal(err)
	}
	none := func(context.Context, spread.Part, func(sale.Order) error) error { return nil }
	if err := w.stock.Load(t.Context(), s, none); err != nil {
		t.Fatal(err)
	}
	w.sell()
	return w
}

// recover does what a backend does when it finds the shard unverified, and expects that it succeeds.
func (w *world) recover() {
	w.t.Helper()
	testenv.Eventually(w.t, time.Minute, "the shard is rebuilt", func() bool {
		return w.runIf() == nil && w.verified()
	})
}

func (w *world) runIf() error {
	return w.rebuild.RunIf(w.t.Context(), w.shard, func(context.Context) bool { return !w.verified() })
}

func (w *world) verified() bool {
	err := w.guards.Of(w.shard).Check(w.t.Context(), w.db)
	_, ok := w.guards.Of(w.shard).Verified()
	return err == nil && ok
}

func (w *world) try(buyer string) (admission.Decision, error) {
	return w.admit.Admit(w.t.Context(), admission.Request{
		SaleID: w.id, Buyer: buyer, Key: buyer, KeyTTL: time.Hour, Fingerprint: "f",
	})
}

// sell sells to 120 further buyers. Some orders become rows, some are leased, one is a dead letter.
func (w *world) sell() (leased queue.Batch) {
	w.t.Helper()
	ctx := w.t.Context()
	for range 120 {
		buyer := fmt.Sprint("buyer-", len(w.orders))
		d, err := w.try(buyer)
		if err != nil || d.Outcome != sale.Accepted {
			w.t.Fatalf("purchase of %s: %v, %v", buyer, d.Outcome, err)
		}
		w.orders[buyer] = d.OrderID
	}
	take := func() queue.Batch {
		b, _, err := queuetest.Take(ctx, w.queue, 40, "")
		if err != nil || len(b.Messages) == 0 {
			w.t.Fatalf("lease: %+v, %v", b, err)
		}
		return b
	}
	rows := take()
	if err := w.db.Write(ctx, rows.Messages[1:]); err != nil {
		w.t.Fatal(err)
	}
	dead := queue.Failure{ID: rows.Messages[0].ID, Reason: "bad", Permanent: true}
	if _, err := w.queue.Ack(ctx, rows.ID, dead); err != nil {
		w.t.Fatal(err)
	}
	return take()
}

// move moves the shard to a master.
func (w *world) move(to *testenv.Redis) (move.Result, error) {
	w.t.Helper()
	m, err := move.New(move.Config{
		Server: w.server, Store: w.db, Space: space, Log: quiet,
		Step: func(name string) error {
			w.steps = append(w.steps, name)
			return w.stopAt(name)
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.lock > 0 {
		m.SetLock(w.lock)
	}
	return m.Move(w.ctx, w.shard, to.Addr)
}

// owner is the master of the shard, and other another one.
func (w *world) owner() *testenv.Redis { return w.cluster.Owner(w.shard.Guard()) }

func (w *world) other() *testenv.Redis {
	owner := w.owner()
	return w.cluster.Nodes[slices.IndexFunc(w.cluster.Nodes, func(n *testenv.Redis) bool { return n != owner })]
}

// unmarked verifies that no node of the cluster imports the slot of the shard or is about to leave it, and that only
// its owner has keys of it.
func (w *world) unmarked(when string) {
	w.t.Helper()
	owner := w.owner()
	for _, n := range w.cluster.Nodes {
		if !n.Running() {
			continue
		}
		slot := w.cluster.Slot(w.shard.Guard())
		if keys := n.Client().ClusterGetKeysInSlot(w.t.Context(), slot, 10).Val(); n != owner && len(keys) > 0 {
			w.t.Errorf("%s: %s has keys of the shard: %v", when, n.Addr, keys)
		}
		nodes, err := redisconn.Nodes(context.Background(), n.Client(), n.Addr)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, of := range nodes {
			if len(of.Importing)+len(of.Migrating) > 0 {
				w.t.Errorf("%s: %s imports %v and migrates %v", when, of.Addr, of.Importing, of.Migrating)
			}
		}
	}
}

// rows verifies that a worker writes an order that it leases now.
func (w *world) rows() {
	w.t.Helper()
	generation := store.WithGeneration(w.t.Context(), int(w.shard), w.guards.Of(w.shard).Generation())
	if err := w.db.Write(generation, w.sell().Messages); err != nil {
		w.t.Errorf("a batch of the present generation: %v", err)
	}
}

// check verifies that the shard sells on a master, that every order is known, and that the audit balances.
func (w *world) check(on *testenv.Redis) {
	w.t.Helper()
	testenv.Eventually(w.t, time.Minute, "the shard sells on "+on.Addr, func() bool {
		return w.verified() && w.owner() == on
	})
	for buyer, id := range w.orders {
		if d, err := w.try(buyer); err != nil || d.OrderID != id {
			w.t.Fatalf("%s with order %v got %v, %v, %v", buyer, id, d.Outcome, d.OrderID, err)
		}
	}
	w.sell()
	report, err := audit.New(w.stock, w.db).Audit(w.t.Context(), w.id)
	if err != nil || !report.Balanced || report.Left != int64(stock-len(w.orders)) {
		w.t.Fatalf("audit after %d orders: %+v, %v", len(w.orders), report, err)
	}
}

// A sale that was loaded after the mover read the sales, while another one was removed, must not be left unheld.
func TestHoldRequiresTheSalesOfTheShard(t *testing.T) {
	w := newWorld(t)
	c := w.guards.Of(w.shard).Raw()
	runID := c.HGet(t.Context(), w.shard.Guard(), "run_id").Val()
	deployment := c.HGet(t.Context(), w.shard.Guard(), "deployment").Val()
	keys := []string{w.shard.Guard(), w.shard.Sales(), w.shard.Sale("removed")}
	answer, err := redisscript.Run(t.Context(), c, "move_hold", keys, 1_000_000, runID, deployment, "removed").Slice()
	if err != nil || len(answer) != 1 || answer[0] != "stale" {
		t.Errorf("%v, %v, want stale", answer, err)
	}
	w.check(w.owner()) // nothing is held
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

var errKilled = errors.New("the process was killed")

// A move that stops at any step loses nothing. Before the owner changes, and after it, a backend rebuilds the shard; in
// between, the next move finishes it.
func TestMoveStopsAtAnyStep(t *testing.T) {
	for _, c := range []struct {
		step     string
		nth      int // occurrence of the step
		onTarget bool
		finish   bool
	}{
		{"hold", 1, false, false}, {"copy", 1, false, false}, {"copy", 3, false, false}, {"verify", 1, false, false},
		{"mark", 1, false, false}, {"flip", 1, true, true}, {"release", 1, true, false},
	} {
		t.Run(fmt.Sprint(c.step, c.nth), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			source, target := w.owner(), w.other()
			n := 0
			w.stopAt = func(step string) error {
				if step == c.step {
					if n++; n == c.nth {
						return errKilled
					}
				}
				return nil
			}
			if result, err := w.move(target); !errors.Is(err, errKilled) {
				t.Fatalf("%+v, %v", result, err)
			}
			w.stopAt = func(string) error { return nil }
			if c.finish {
				err := w.runIf()
				remedy := fmt.Sprintf("sluice shard move %d --to %s", w.shard, target.Addr)
				if err == nil || !strings.Contains(err.Error(), remedy) {
					t.Errorf("a rebuild of a half moved shard: %v, want %q", err, remedy)
				}
				third := w.cluster.Nodes[slices.IndexFunc(w.cluster.Nodes, func(n *testenv.Redis) bool {
					return n != source && n != target
				})]
				if _, err := w.move(third); err == nil || !strings.Contains(err.Error(), remedy) {
					t.Errorf("a move to another master: %v, want %q", err, remedy)
				}
				if result, err := w.move(target); err != nil || result.Verified {
					t.Fatalf("finished: %+v, %v", result, err)
				}
			}
			w.recover()
			on, back := source, target
			if c.onTarget {
				on, back = target, source
			}
			w.check(on)
			// what the interrupted move left is no obstacle
			if result, err := w.move(back); err != nil || !result.Verified {
				t.Fatalf("%+v, %v", result, err)
			}
			w.check(back)
		})
	}
}

// An interrupt abandons a move before the owner changes. After that, the move ends as usual: otherwise the shard would
// wait for another command, or for a rebuild.
func TestInterruptedMove(t *testing.T) {
	for step, moves := range map[string]bool{
		"begin": false, "generation": false, "copy": false, "verify": false, "mark": true, "flip": true, "release": true,
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			source, target := w.owner(), w.other()
			interrupted, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			w.ctx = interrupted
			w.stopAt = func(name string) error {
				if name == step {
					interrupt()
				}
				return nil
			}
			switch step {
			case "begin":
				w.db.read = interrupt
			case "generation":
				w.db.began = interrupt
			}
			result, err := w.move(target)
			on := source
			if moves {
				on = target
			}
			if (err == nil) != moves || result.Verified != moves {
				t.Errorf("%+v, %v", result, err)
			}
			want := fmt.Sprintf("move shard %d: the move was interrupted, and the shard continues on %s; "+
				"run it again: sluice shard move %d --to %s", int(result.Shard), source.Addr, int(result.Shard), target.Addr)
			if err != nil && (err.Error() != want || !errors.Is(err, move.ErrInterrupted)) {
				t.Errorf("%v, want %s", err, want)
			}
			testenv.Eventually(t, time.Minute, "the shard is verified without a rebuild", w.verified)
			w.unmarked("interrupted")
			w.check(on)
		})
	}
}

// killAtFlip moves the shard with a process that is killed while the owner changes.
func (w *world) killAtFlip(target *testenv.Redis) {
	w.t.Helper()
	w.stopAt = func(step string) error {
		if step == "flip" {
			return errKilled
		}
		return nil
	}
	if result, err := w.move(target); !errors.Is(err, errKilled) {
		w.t.Fatalf("%+v, %v", result, err)
	}
	w.stopAt = func(string) error { return nil }
}

// If the target is replaced by its replica while the owner changes, the move is finished on the replica.
func TestMoveIsFinishedOnTheReplicaOfTheTarget(t *testing.T) {
	w := newWorldOn(t, testenv.StartRedisCluster(t, 3))
	target := w.other()
	replica := w.cluster.Partner(target)
	w.killAtFlip(target)
	w.cluster.Replace(target, testenv.Complete, nil)
	w.cluster.Rejoin(target)
	testenv.Eventually(t, time.Minute, "the error names the master of the replica", func() bool {
		_, err := w.move(target)
		t.Log(err)
		return err != nil && strings.Contains(err.Error(), "is a replica: name its master, "+replica.Addr)
	})
	third := w.cluster.Nodes[slices.IndexFunc(w.cluster.Nodes, func(n *testenv.Redis) bool {
		return n != w.owner() && n != target && n != replica && w.cluster.IsMaster(n)
	})]
	remedy := fmt.Sprintf("sluice shard move %d --to %s", w.shard, replica.Addr)
	if _, err := w.move(third); err == nil || !strings.Contains(err.Error(), remedy) {
		t.Errorf("a move to another master: %v, want %q", err, remedy)
	}
	if result, err := w.move(replica); err != nil || result.Verified {
		t.Fatalf("finished: %+v, %v", result, err)
	}
	w.recover()
	w.check(replica)
}

// A mover that is suspended past its lock changes nothing when a backend has rebuilt the shard, or another move has
// finished, meanwhile.
func TestSuspendedMoverChangesNothing(t *testing.T) {
	for _, at := range []string{"copy", "mark", "flip", "release"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			source, target := w.owner(), w.other()
			on := source
			suspended := false
			w.lock = time.Minute
			w.stopAt = func(step string) error {
				if step != at || suspended {
					return nil
				}
				suspended = true
				_ = source.Client().Del(t.Context(), w.shard.RebuildLock()).Err() // the locks expire
				onImporter(t, target, "DEL", w.shard.RebuildLock())
				w.lock = 0
				switch step {
				case "flip":
					on = target
					testenv.Eventually(t, time.Minute, "another move finishes", func() bool {
						result, err := w.move(target)
						return err == nil && !result.Verified
					})
				case "release":
					on = target
				}
				w.recover()
				w.check(on)
				return nil
			}
			if result, err := w.move(target); err == nil {
				t.Errorf("the suspended move succeeded: %+v", result)
			}
			w.check(on)
			if _, err := w.move(map[bool]*testenv.Redis{true: target, false: source}[on == source]); err != nil {
				t.Error(err)
			}
		})
	}
}

// A process that is suspended before it finishes an interrupted move changes nothing when another one has finished it
// and the shard has moved back.
func TestSuspendedFinishChangesNothing(t *testing.T) {
	w := newWorld(t)
	source, target := w.owner(), w.other()
	w.killAtFlip(target)
	suspended := false
	w.stopAt = func(step string) error {
		if step != "finish" || suspended {
			return nil
		}
		suspended = true
		if _, err := w.move(target); err != nil {
			t.Error(err)
		}
		w.recover()
		if _, err := w.move(source); err != nil {
			t.Error(err)
		}
		w.check(source)
		return nil
	}
	if result, err := w.move(target); err == nil || !strings.Contains(err.Error(), "another process has finished") {
		t.Errorf("the suspended process: %+v, %v", result, err)
	}
	w.check(source)
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
	if !errors.Is(second, move.ErrBusy) {
		t.Errorf("the second move: %v, want %v", second, move.ErrBusy)
	}
	w.unmarked("moved")
	w.check(target)
}

// onImporter runs a command on a server that imports the slot.
func onImporter(t *testing.T, n *testenv.Redis, args ...any) {
	t.Helper()
	ctx := context.Background()
	_, err := n.Client().Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Do(ctx, "ASKING")
		p.Do(ctx, args...)
		return nil
	})
	if err != nil {
		t.Errorf("%v: %v", args, err)
	}
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
	refused("a rebuild in progress", move.ErrBusy.Error())
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
	gone := redis.NewClient(&redis.Options{Addr: testenv.FreeAddress(t), MaxRetries: -1})
	t.Cleanup(func() { _ = gone.Close() })
	if err := move.AwaitReplicas(t.Context(), gone); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("%v, want %v", err, sale.ErrUnavailable)
	}
}
