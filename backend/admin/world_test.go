package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/admission/admissiontest"
	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

const shards = 2

var space = keyspace.Space{Shards: shards}

// world has a Service and DeadLetters over a real Redis and SQLite, and the public API's parts that create orders.
type world struct {
	*Service
	dead   *DeadLetters
	t      *testing.T
	ctx    context.Context
	redis  *testenv.Redis
	url    string // of the database
	store  *store.Store
	stock  *admission.Stock
	queues []*queue.List
	admit  *admission.Admitter
	faults *faults
}

func newWorld(t *testing.T) *world {
	t.Helper()
	r := testenv.StartRedis(t)
	return newWorldOn(t, r, openRedis(t, r), nil)
}

// newSplitWorld returns a world in which each shard has a Redis server of its own.
func newSplitWorld(t *testing.T, options ...redisconn.Option) (w *world, servers [shards]*testenv.Redis) {
	t.Helper()
	var clients [shards]redisconn.Client
	for i := range servers {
		servers[i] = testenv.StartRedis(t)
		clients[i] = openRedis(t, servers[i], options...)
	}
	server := func(shard keyspace.Shard) redisconn.Client { return clients[shard] }
	w = newWorldOn(t, nil, redisconn.Route(func(key string) redisconn.Client {
		shard, _ := keyspace.ShardOfKey(key)
		return server(shard)
	}), server)
	return w, servers
}

func openRedis(t *testing.T, r *testenv.Redis, options ...redisconn.Option) redisconn.Client {
	t.Helper()
	redisconn.Quiet(slog.New(slog.DiscardHandler))
	client, err := redisconn.Open(r.URL, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newWorldOn returns a world that uses the client; r is its server if it has one, and server is StockConfig.Server.
func newWorldOn(
	t *testing.T, r *testenv.Redis, client redisconn.Client, server func(keyspace.Shard) redisconn.Client,
) *world {
	t.Helper()
	databaseURL := storetest.SQLite(t)
	rows := storetest.Open(t, databaseURL)
	refillers := spread.NewRefillers(spread.NewMover(admission.NewSegments(client, space, nil), rows))
	w := &world{
		t: t, ctx: store.WithActor(context.Background(), "ann"), redis: r, faults: &faults{}, url: databaseURL, store: rows,
		stock: admission.NewStock(admission.StockConfig{Client: client, Server: server, Space: space, Claimer: rows}),
		admit: admissiontest.NewAdmitter(t, client, space, func(c *admission.Config) {
			c.Refillers = refillers
		}),
	}
	var all []Shard
	for _, shard := range space.All() {
		q := queue.NewList(client, shard, queue.Config{})
		w.queues = append(w.queues, q)
		all = append(all, faultyShard{q, w.faults})
	}
	cfg := Config{
		Store: faultyStore{w.store, w.faults}, Stock: faultyStock{w.stock, w.faults}, Shards: all,
		Refillers: refillers, Log: slog.New(slog.DiscardHandler),
	}
	w.Service, w.dead = New(cfg), NewDeadLetters(cfg)
	return w
}

// plain returns a configuration without faults, because their counter is not synchronized.
func (w *world) plain() Config {
	return Config{Store: w.store, Stock: w.stock, Shards: []Shard{w.queues[0], w.queues[1]}}
}

func (w *world) create(id string, stock int64) View {
	w.t.Helper()
	v, err := w.Create(w.ctx, storetest.Sale(id, stock))
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

func (w *world) buy(saleID, buyer string) admission.Decision {
	w.t.Helper()
	k, err := w.stock.Spread(w.ctx, saleID)
	if err != nil && !errors.Is(err, admission.ErrNotLoaded) {
		w.t.Fatal(err)
	}
	d, err := w.admit.Admit(
		w.ctx,
		admission.Request{
			SaleID: saleID,
			Spread: k,
			Buyer:  buyer,
			Key:    strconv.FormatInt(time.Now().UnixNano(), 36),
			KeyTTL: time.Minute,
		},
	)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// makeDead creates a dead letter: a buyer's order that fails permanently.
func (w *world) makeDead(saleID, buyer string) sale.Order {
	w.t.Helper()
	return w.die(saleID, buyer, w.buy(saleID, buyer).OrderID)
}

// die makes the queued order of a buyer dead.
func (w *world) die(saleID, buyer string, id sale.OrderID) sale.Order {
	w.t.Helper()
	k, err := w.stock.Spread(w.ctx, saleID)
	if err != nil {
		w.t.Fatal(err)
	}
	q := w.queues[w.stock.ShardOf(spread.HomePart(saleID, buyer, k))]
	b, _, err := queuetest.Take(w.ctx, q, 10, "")
	if err != nil || len(b.Messages) != 1 || b.Messages[0].ID != id {
		w.t.Fatalf("took %+v, %v; want order %s", b, err, id)
	}
	if _, err := q.Ack(w.ctx, b.ID, queue.Failure{ID: id, Reason: "card stolen", Permanent: true}); err != nil {
		w.t.Fatal(err)
	}
	return b.Messages[0]
}

// lose deletes a sale from Redis. Its orders stay in the queue.
func (w *world) lose(id string) {
	w.t.Helper()
	shard := space.ShardOf(id)
	if err := w.redis.Client().Del(w.ctx, shard.Sale(id), shard.Stock(id), shard.Buyers(id)).Err(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) view(saleID string) admission.View {
	w.t.Helper()
	v, err := w.stock.View(w.ctx, saleID)
	if err != nil {
		w.t.Fatal(err)
	}
	return v
}

// wantTotals checks the units left in Redis and the orders in SQL.
func (w *world) wantTotals(saleID string, left, sold int64) {
	w.t.Helper()
	c, err := w.store.Count(w.ctx, spread.Part{SaleID: saleID}, store.Always, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	if got := w.view(saleID).Left; got != left || c.Sold != sold || c.Rows != sold {
		w.t.Fatalf("sale %s: %d left, %d sold, %d rows; want %d left, %d sold", saleID, got, c.Sold, c.Rows, left, sold)
	}
}

func (w *world) wantNoDeadLetter(id sale.OrderID) {
	w.t.Helper()
	if _, letter, err := w.dead.find(w.ctx, id); !errors.Is(err, sale.ErrNotFound) {
		w.t.Fatalf("the dead letter still exists: %+v, %v", letter, err)
	}
}

// faults makes one call of a store fail, either before the call takes effect or after it, as if the response was lost.
type faults struct {
	at    int64 // 1 is the next call; 0 never
	after bool
	calls int64
	what  string // the call that failed
}

var errFault = fmt.Errorf("connection reset: %w", sale.ErrUnavailable)

func (f *faults) call(what string, do func() error) error {
	if atomic.AddInt64(&f.calls, 1) != f.at { // shards are used concurrently
		return do()
	}
	f.what = what
	if f.after {
		_ = do() // its response is lost
	}
	return errFault
}

// each runs try with a fault at its first call, its second, and so on, until a run makes fewer calls. Each call fails
// once before and once after it takes effect.
func (w *world) each(try func(name string)) {
	w.t.Helper()
	for at := int64(1); ; at++ {
		for _, after := range []bool{false, true} {
			*w.faults = faults{at: at, after: after}
			try(fmt.Sprintf("f%d-%v", at, after))
			if w.t.Failed() {
				w.t.Fatalf("with a fault at call %d, %s, made=%v", at, w.faults.what, after)
			}
		}
		if w.faults.what == "" {
			if at < 3 {
				w.t.Fatal("no call failed")
			}
			return
		}
	}
}

func (w *world) noFault() { w.faults.at = 0 }

type faultyStore struct {
	*store.Store
	f *faults
}

func (s faultyStore) CreateSale(ctx context.Context, n sale.Sale) (got sale.Sale, err error) {
	return got, s.f.call("CreateSale", func() error { got, err = s.Store.CreateSale(ctx, n); return err })
}

func (s faultyStore) Sale(ctx context.Context, id string) (got sale.Sale, sold int64, err error) {
	return got, sold, s.f.call("Sale", func() error { got, sold, err = s.Store.Sale(ctx, id); return err })
}

func (s faultyStore) SetSwitch(ctx context.Context, id string, to sale.Switch) (got sale.Sale, err error) {
	return got, s.f.call("SetSwitch", func() error { got, err = s.Store.SetSwitch(ctx, id, to); return err })
}

func (s faultyStore) OpenSale(ctx context.Context, id string, at time.Time) (got sale.Sale, err error) {
	return got, s.f.call("OpenSale", func() error { got, err = s.Store.OpenSale(ctx, id, at); return err })
}

func (s faultyStore) Restock(ctx context.Context, id string, add int64, key string) (got sale.Sale, err error) {
	return got, s.f.call("Restock", func() error { got, err = s.Store.Restock(ctx, id, add, key); return err })
}

func (s faultyStore) OrdersOf(ctx context.Context, of spread.Part, yield func(sale.Order) error) error {
	return s.f.call("OrdersOf", func() error { return s.Store.OrdersOf(ctx, of, yield) })
}

func (s faultyStore) CancelDead(ctx context.Context, o store.DeadOrder) (was bool, err error) {
	return was, s.f.call("CancelDead", func() error { was, err = s.Store.CancelDead(ctx, o); return err })
}

func (s faultyStore) DropDead(ctx context.Context, o store.DeadOrder, because error) error {
	return s.f.call("DropDead", func() error { return s.Store.DropDead(ctx, o, because) })
}

func (s faultyStore) CancelOverdue(ctx context.Context, limit int) (got []sale.Order, err error) {
	err = s.f.call("CancelOverdue", func() error { got, err = s.Store.CancelOverdue(ctx, limit); return err })
	if err != nil {
		got = nil // the reply is lost
	}
	return got, err
}

func (s faultyStore) CancelOrder(ctx context.Context, id sale.OrderID) (o sale.Order, changed bool, err error) {
	return o, changed, s.f.call("CancelOrder",
		func() error { o, changed, err = s.Store.CancelOrder(ctx, id); return err })
}

func (s faultyStore) Returning(
	ctx context.Context,
	after sale.OrderID,
	age time.Duration,
	limit int,
) (got []sale.Order, err error) {
	err = s.f.call("Returning", func() error { got, err = s.Store.Returning(ctx, after, age, limit); return err })
	return got, err
}

func (s faultyStore) MarkReturned(ctx context.Context, returns []store.Return) error {
	return s.f.call("MarkReturned", func() error { return s.Store.MarkReturned(ctx, returns) })
}

func (s faultyStore) Returned(ctx context.Context, ids []sale.OrderID) (got []sale.Order, err error) {
	err = s.f.call("Returned", func() error { got, err = s.Store.Returned(ctx, ids); return err })
	return got, err
}

func (s faultyStore) Record(ctx context.Context, action, target, detail string) error {
	return s.f.call("Record", func() error { return s.Store.Record(ctx, action, target, detail) })
}

func (s faultyStore) LogRetry(ctx context.Context, o sale.Order, failure string) error {
	return s.f.call("LogRetry", func() error { return s.Store.LogRetry(ctx, o, failure) })
}

type faultyStock struct {
	*admission.Stock
	f *faults
}

func (s faultyStock) View(ctx context.Context, id string) (v admission.View, err error) {
	return v, s.f.call("View", func() error { v, err = s.Stock.View(ctx, id); return err })
}

func (s faultyStock) Update(ctx context.Context, n sale.Sale) error {
	return s.f.call("Update", func() error { return s.Stock.Update(ctx, n) })
}

func (s faultyStock) LoadAll(ctx context.Context, parts []admission.SalePart, orders admission.OrdersOf) error {
	return s.f.call("LoadAll", func() error { return s.Stock.LoadAll(ctx, parts, orders) })
}

func (s faultyStock) UpdatePart(ctx context.Context, p admission.SalePart) error {
	return s.f.call("Update", func() error { return s.Stock.UpdatePart(ctx, p) })
}

func (s faultyStock) Versions(
	ctx context.Context, parts []spread.Part,
) (versions map[spread.Part]int64, err error) {
	return versions, s.f.call("Versions", func() error { versions, err = s.Stock.Versions(ctx, parts); return err })
}

func (s faultyStock) ReturnUnits(
	ctx context.Context, of spread.Part, orders []sale.Order,
) (numbers []int64, err error) {
	err = s.f.call("ReturnUnits", func() error { numbers, err = s.Stock.ReturnUnits(ctx, of, orders); return err })
	return numbers, err
}

func (s faultyStock) PendingReturns(ctx context.Context, of spread.Part) (ids []sale.OrderID, err error) {
	err = s.f.call("PendingReturns", func() error { ids, err = s.Stock.PendingReturns(ctx, of); return err })
	return ids, err
}

func (s faultyStock) HaveSlots(ctx context.Context, orders []sale.Order) (holds []bool, err error) {
	return holds, s.f.call("HaveSlots", func() error { holds, err = s.Stock.HaveSlots(ctx, orders); return err })
}

func (s faultyStock) ConfirmReturns(ctx context.Context, of spread.Part, orders []sale.Order) error {
	return s.f.call("ConfirmReturns", func() error { return s.Stock.ConfirmReturns(ctx, of, orders) })
}

func (s faultyStore) RemoveRehearsal(ctx context.Context, id string) (n int64, err error) {
	return n, s.f.call("RemoveRehearsal", func() error { n, err = s.Store.RemoveRehearsal(ctx, id); return err })
}

func (s faultyStock) Remove(ctx context.Context, def sale.Sale) error {
	return s.f.call("Remove", func() error { return s.Stock.Remove(ctx, def) })
}

type faultyShard struct {
	*queue.List
	f *faults
}

func (l faultyShard) RetryDead(ctx context.Context, id sale.OrderID) error {
	return l.f.call("RetryDead", func() error { return l.List.RetryDead(ctx, id) })
}

func (l faultyShard) BeginCancel(ctx context.Context, id sale.OrderID) (d queue.DeadLetter, err error) {
	return d, l.f.call("BeginCancel", func() error { d, err = l.List.BeginCancel(ctx, id); return err })
}

func (l faultyShard) FinishCancel(ctx context.Context, id sale.OrderID, returnUnit bool) error {
	return l.f.call("FinishCancel", func() error { return l.List.FinishCancel(ctx, id, returnUnit) })
}
