package assemble

import (
	"errors"
	"strings"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// newSpreadSale returns a backend on two shards, and a sale of ten units that both sell.
func newSpreadSale(t *testing.T) (*Backend, sale.Sale) {
	t.Helper()
	ctx := t.Context()
	redis, database := testenv.StartRedis(t).URL, storetest.SQLite(t)
	b := newShardedBackend(t, redis, database, 2)
	if err := errors.Join(b.Verify(ctx), b.Admin.RunOnce(ctx)); err != nil {
		t.Fatal(err)
	}
	wanted := newSale()
	wanted.Stock, wanted.Spread = 10, 2
	if _, err := b.Admin.Create(ctx, wanted); err != nil {
		t.Fatal(err)
	}
	return b, wanted
}

// The queue of one segment is stalled, that of the other one is empty.
func TestFullQueueHasThePaceOfItsSegment(t *testing.T) {
	b, wanted := newSpreadSale(t)
	for segment, waiting := range []int64{0, 7} {
		home := spread.PartOf(wanted.ID, segment, wanted.Spread)
		meter := &b.meters[b.stock.ShardOf(home)]
		for i := range 2 {
			meter.Sample(time.Unix(int64(60*i), 0), waiting, queue.Stats{Ready: waiting})
		}
		if got, want := b.queueFull(home), []time.Duration{2 * time.Second, time.Minute}[segment]; got != want {
			t.Errorf("segment %d: retry after %s, want %s", segment, got, want)
		}
	}
}

// While the database is down, the previous rate is not used to estimate the time until all orders are in the database.
func TestQueueHasNoPaceWhileTheDatabaseIsDown(t *testing.T) {
	ctx := t.Context()
	b, _ := newSpreadSale(t)
	order := keyspace.Message{ID: sale.NewOrderID(time.Now(), 2), SaleID: "shoe", Buyer: "ann", Slot: 1, Serial: 1}
	if err := b.stores.queues[0].Push(ctx, order); err != nil {
		t.Fatal(err)
	}
	meter := &b.meters[0]
	pace := func() queue.Pace {
		*meter = queue.Meter{}
		now := time.Now()
		meter.Sample(now.Add(-4*time.Second), 0, queue.Stats{Ready: 21})
		meter.Sample(now.Add(-2*time.Second), 0, queue.Stats{Ready: 1})
		b.measureOnce(ctx) // it fails if it takes longer than meterEvery
		return meter.Pace()
	}
	testenv.Eventually(t, time.Minute, "with the database, the queue drains", func() bool {
		p := pace()
		return p.Drains && p.Known
	})
	if err := b.stores.db.Close(); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "without the database, no pace is known", func() bool {
		return pace() == queue.Pace{}
	})
}

// A backend sets units apart and stops, and the sale is closed. Another backend returns the units.
func TestTransfersOfClosedSalesAreSettled(t *testing.T) {
	ctx := t.Context()
	b, wanted := newSpreadSale(t)
	of := spread.Sale{ID: wanted.ID, Spread: wanted.Spread}
	segments := admission.NewSegments(b.stores.redis, b.stores.space, b.stores.guards.Deployment)
	if _, err := segments.SetApart(ctx, of, spread.Move{From: 0, To: 1, Units: 3}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Admin.SetSwitch(ctx, of.ID, sale.Closed); err != nil {
		t.Fatal(err)
	}
	inTransfer := func() int64 {
		t.Helper()
		report, err := audit.New(b.stock, b.stores.tables).Audit(ctx, of.ID)
		if err != nil || !report.Balanced {
			t.Fatalf("audit: %+v, %v", report, err)
		}
		return report.InTransfer
	}
	if got := inTransfer(); got != 3 {
		t.Fatalf("%d units are in transfer after the close, want 3", got)
	}
	if err := b.Admin.RunOnce(ctx); err != nil {
		t.Fatal(err)
	}
	if open := b.Admin.SpreadSales(time.Now()); len(open) != 0 {
		t.Errorf("%v sell after the close", open)
	}
	settled := b.settleOnce(ctx, nil)
	if got := inTransfer(); got != 0 || settled[of] != 0 {
		t.Errorf("%d units are in transfer; the pass that settled them counts %d", got, settled[of])
	}
	for range settledPasses {
		settled = b.settleOnce(ctx, settled)
	}
	if settled[of] != settledPasses {
		t.Errorf("%d passes had nothing to settle, want %d", settled[of], settledPasses)
	}
}

// With fewer shards than a sale has segments, two segments would share a shard and their keys.
func TestShardsHoldTheSegmentsOfEverySale(t *testing.T) {
	ctx, database := t.Context(), storetest.SQLite(t)
	db := storetest.Open(t, database)
	if _, _, err := db.ClaimDeployment(ctx, 2); err != nil {
		t.Fatal(err)
	}
	wanted := newSale()
	wanted.Stock, wanted.Spread = 10, 3
	if _, err := db.CreateSale(ctx, wanted); err != nil {
		t.Fatal(err)
	}
	open := func() error {
		s, err := OpenStores(ctx, StoresConfig{
			Redis: testenv.StartRedis(t).URL, Database: database, Shards: 2, Existing: true, Driver: DriverList,
		})
		if err == nil {
			s.Close()
		}
		return err
	}
	err := open()
	if _, ok := errors.AsType[UsageError](err); !ok || !strings.Contains(err.Error(), "3 segments") {
		t.Errorf("two shards for three segments: %v", err)
	}
	storetest.Exec(t, database, "UPDATE sales SET archived = 1")
	if err := open(); err != nil {
		t.Errorf("the sale is archived: %v", err)
	}
}
