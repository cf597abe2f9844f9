package rebuild_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"sluice/backend/recovery/rebuild"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// countingRows calls do while the rows of a sale are read, with the number of such calls in progress. The sales seem
// to have this many orders.
type countingRows struct {
	rebuild.Store
	orders  int64
	reading atomic.Int64
	do      func(reading int64)
}

func (r *countingRows) SaleSummaries(ctx context.Context) ([]store.SaleSummary, error) {
	all, err := r.Store.SaleSummaries(ctx)
	for i := range all {
		all[i].Sold = r.orders
	}
	return all, err
}

func (r *countingRows) OrdersOf(ctx context.Context, of spread.Part, yield func(sale.Order) error) error {
	defer r.reading.Add(-1)
	r.do(r.reading.Add(1))
	return r.Store.OrdersOf(ctx, of, yield)
}

// Small sales are counted concurrently, because each costs several round trips.
func TestSmallSalesAreCountedConcurrently(t *testing.T) {
	w := newWorld(t)
	w.create("a", 5, 1)
	w.create("b", 5, 1)
	both := make(chan struct{})
	var once sync.Once
	rows := &countingRows{Store: w.store, do: func(reading int64) {
		if reading == 2 {
			once.Do(func() { close(both) })
		}
		<-both
	}}
	r := newRebuilder(t, rebuild.Config{Pinner: w.guards, Store: rows, Space: space})
	if err := r.Run(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.check()
	w.want("a", 5, 0, 0, 0, 0)
	w.want("b", 5, 0, 0, 0, 0)
}

// A large sale is counted alone: its buyers are in memory.
func TestLargeSaleIsCountedAlone(t *testing.T) {
	w := newWorld(t)
	w.create("a", 5, 1)
	w.create("b", 5, 1)
	w.create("c", 5, 1)
	rows := &countingRows{Store: w.store, orders: 100_000, do: func(reading int64) {
		if reading != 1 {
			t.Errorf("%d sales are counted concurrently", reading)
		}
	}}
	r := newRebuilder(t, rebuild.Config{Pinner: w.guards, Store: rows, Space: space})
	if err := r.Run(w.ctx); err != nil {
		t.Fatal(err)
	}
}

// No step holds a connection to the database while it waits for another one.
func TestRebuildWithAPoolOfOneConnection(t *testing.T) {
	at, err := url.Parse(storetest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	query := at.Query()
	query.Set("pool_max_conns", "1")
	at.RawQuery = query.Encode()
	w := &world{t: t, ctx: t.Context(), redis: testenv.StartRedis(t), url: at.String()}
	w.store = openDatabase(t, w.url)
	w.start()
	w.run()
	for i := range 6 {
		id := fmt.Sprint("s", i)
		w.create(id, 5, 1)
		w.buy(id, "ann")
		w.buy(id, "bob")
	}
	w.write("s0", 6)
	w.raw().FlushAll(w.ctx)
	w.run()
	w.want("s0", 3, 0, 2, 0, 0)
	w.want("s5", 3, 2, 0, 0, 0)
}
