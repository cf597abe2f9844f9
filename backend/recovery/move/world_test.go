package move_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
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
	stopAt  func(step string) error // called before each step of a move; an error ends the process
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

// newDatabase returns the database of a new deployment.
func newDatabase(t *testing.T) *database {
	t.Helper()
	tables := storetest.Open(t, storetest.SQLite(t))
	db := &database{tables, journal.NewRegistry(tables.DB), nil, false, func() {}, func() {}}
	if _, _, err := db.ClaimDeployment(t.Context(), len(space.All())); err != nil {
		t.Fatal(err)
	}
	return db
}

// newRebuilder returns guards, and a Rebuilder that must not pause a sale.
func newRebuilder(t *testing.T, server *redisconn.Server, db *database) (*guard.Shards, *rebuild.Rebuilder) {
	t.Helper()
	guards := guard.Open(guard.Config{Server: server, Space: space, Log: quiet})
	t.Cleanup(func() { _ = guards.Close() })
	r, err := rebuild.New(rebuild.Config{
		Pinner: guards, Store: db, Space: space, JournalWait: time.Millisecond, Log: quiet,
		Pause: func(_ context.Context, id, reason string) error {
			t.Errorf("sale %s was paused: %s", id, reason)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return guards, r
}

const stock = 1000

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, testenv.StartRedisMasters(t, 3))
}

func newWorldOn(t *testing.T, cluster *testenv.RedisCluster) *world {
	t.Helper()
	redisconn.Quiet(quiet)
	w := &world{
		t: t, cluster: cluster, id: "s", db: newDatabase(t),
		orders: map[string]sale.OrderID{}, stopAt: func(string) error { return nil }, ctx: t.Context(),
	}
	w.shard = space.ShardOf(w.id)
	server, err := redisconn.NewServer(w.cluster.URL)
	if err != nil {
		t.Fatal(err)
	}
	w.server = server
	w.guards, w.rebuild = newRebuilder(t, server, w.db)
	w.recover()
	w.stock = admission.NewStock(admission.StockConfig{
		Client: w.guards.Client(), Space: space, Deployment: w.guards.Deployment,
		Server: func(shard keyspace.Shard) redisconn.Client { return w.guards.Of(shard).Client() },
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
	killed := make(chan error, 1)
	m, err := move.New(move.Config{
		Server: w.server, Store: w.db, Space: space, Log: quiet,
		Progress: func(name string, _, _ int) {
			w.steps = append(w.steps, name)
			if err := w.stopAt(name); err != nil { // the process ends
				killed <- err
				runtime.Goexit()
			}
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.lock > 0 {
		m.SetLock(w.lock)
	}
	var result move.Result
	var moves sync.WaitGroup
	moves.Go(func() { result, err = m.Move(w.ctx, w.shard, to.Addr) })
	moves.Wait()
	select {
	case err = <-killed:
	default:
	}
	return result, err
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
