package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/admission/admissiontest"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// One of two shards loses its data. The other one sells meanwhile and keeps its generation; only the lost orders are
// restored, and a worker's batch of the other shard is still written.
func TestShardsAreRebuiltSeparately(t *testing.T) {
	ctx, two := t.Context(), keyspace.Space{Shards: 2}
	server := testenv.StartRedis(t)
	db := openDatabase(t, storetest.SQLite(t))
	guards := openGuards(t, server.URL, two)
	var writers rebuild.JournalWriters
	for _, shard := range two.All() {
		j, g := newJournal(t, 0), guards.Of(shard)
		t.Cleanup(func() { _ = j.Close() })
		writers = append(writers, newWriter(rebuild.JournalWriterConfig{
			Journal: j, Store: db, Restorer: rebuild.NewRestorer(g, g.Raw(), shard, db),
		}))
	}
	r := newRebuilder(t, rebuild.Config{Pinner: guards, Store: db, Space: two})
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if err := guards.Check(ctx, db); err != nil {
			t.Fatal(err)
		}
	}
	check()
	stock := admission.NewStock(admission.StockConfig{
		Client: guards.Client(), Server: func(shard keyspace.Shard) redisconn.Client { return guards.Of(shard).Client() },
		Space: two, Deployment: guards.Deployment,
	})
	admit := admissiontest.NewAdmitter(t, guards.Client(), two, func(c *admission.Config) { c.Recorder = writers })
	var ids [2]string // a sale in each shard
	for i := 0; ids[0] == "" || ids[1] == ""; i++ {
		id := fmt.Sprint("sale", i)
		ids[two.ShardOf(id)] = id
	}
	for _, id := range ids {
		s, err := db.CreateSale(ctx, storetest.Sale(id, 5))
		if err != nil {
			t.Fatal(err)
		}
		if err := stock.Load(ctx, s,
			func(context.Context, spread.Part, func(sale.Order) error) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	buy := func(shard keyspace.Shard, buyer string) (admission.Decision, error) {
		return admit.Admit(ctx, admission.Request{SaleID: ids[shard], Buyer: buyer, Key: "k", KeyTTL: time.Minute})
	}
	var bought [2]sale.OrderID
	for shard := range bought {
		d, err := buy(keyspace.Shard(shard), "ann")
		if err != nil || d.Outcome != sale.Accepted {
			t.Fatalf("shard %d: %v, %v", shard, d.Outcome, err)
		}
		bought[shard] = d.OrderID
	}
	kept := guards.Of(1).Generation()

	for _, key := range server.Client().Keys(ctx, "sluice:{0}:*").Val() {
		server.Client().Del(ctx, key)
	}
	check()
	if _, err := buy(0, "bob"); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("a purchase from the lost shard: %v", err)
	}
	if d, err := buy(1, "bob"); err != nil || d.Outcome != sale.Accepted {
		t.Errorf("a purchase from the other shard: %v, %v", d.Outcome, err)
	}
	if views, err := stock.List(ctx); err != nil || len(views) != 1 || views[0].ID != ids[1] {
		t.Errorf("sales %+v, %v", views, err)
	}
	if o, err := admission.NewFinder(stock).FindOrder(ctx, "ann", bought[1]); err != nil || o.SaleID != ids[1] {
		t.Errorf("order of the other shard: %+v, %v", o, err)
	}
	if _, err := admission.NewFinder(stock).FindOrder(ctx, "ann", bought[0]); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("order of the lost shard: %v", err)
	}
	unverified := func(context.Context) bool {
		_, ok := guards.Of(0).Verified()
		return !ok
	}
	if err := r.RunIf(ctx, 0, unverified); err != nil {
		t.Fatal(err)
	}
	check()
	for _, w := range writers {
		if _, err := w.Restore(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if now := guards.Of(1).Generation(); now != kept || guards.Of(0).Generation() <= kept {
		t.Errorf("generations %d and %d, before %d", guards.Of(0).Generation(), now, kept)
	}
	if d, err := buy(0, "ann"); err != nil || d.OrderID != bought[0] {
		t.Errorf("the lost order was not restored: %+v, %v", d, err)
	}
	batch := []sale.Order{{ID: bought[1], SaleID: ids[1], Buyer: "ann", Slot: 1, Serial: 1}}
	if err := db.Write(store.WithGeneration(ctx, 1, kept), batch); err != nil {
		t.Errorf("a batch of the other shard: %v", err)
	}
	batch[0].SaleID, batch[0].ID = ids[0], bought[0]
	if err := db.Write(store.WithGeneration(ctx, 0, kept), batch); !errors.Is(err, store.ErrStale) {
		t.Errorf("a batch of the lost shard: %v", err)
	}
	if _, err := guards.Client().Get(ctx, keyspace.Shard(7).Stock("s")).Result(); err == nil ||
		errors.Is(err, guard.ErrUnverified) {
		t.Errorf("a key of an unknown shard: %v", err)
	}
}
