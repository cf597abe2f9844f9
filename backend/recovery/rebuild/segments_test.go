package rebuild_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// suspendedClaims checks that a segment is suspended in Redis when its allocation is claimed.
type suspendedClaims struct {
	rebuild.Store
	t      *testing.T
	client *redis.Client
	space  keyspace.Space
	claims int
}

func (s *suspendedClaims) Claim(ctx context.Context, saleID string, segment int) (spread.Allocation, error) {
	s.claims++
	key := s.space.ShardOfSegment(saleID, segment).Sale(saleID)
	if s.client.HExists(ctx, key, "version").Val() {
		s.t.Errorf("segment %d is claimed while it can begin a transfer", segment)
	}
	return s.Store.Claim(ctx, saleID, segment)
}

// Each segment of a sale is rebuilt from its allocation: a transfer that is committed counts as moved, and one that is
// not stays in its source. An order that had only its slot is queued again, with a serial of its segment.
func TestSegmentsAreRebuiltSeparately(t *testing.T) {
	ctx, two := t.Context(), keyspace.Space{Shards: 2}
	server := testenv.StartRedis(t)
	db := openDatabase(t, storetest.SQLite(t))
	guards := openGuards(t, server.URL, two)
	claims := &suspendedClaims{Store: db, t: t, client: server.Client(), space: two}
	r := newRebuilder(t, rebuild.Config{Pinner: guards, Store: claims, Space: two})
	run := func(only ...string) {
		t.Helper()
		if err := r.Run(ctx, only...); err != nil {
			t.Fatal(err)
		}
		if err := guards.Check(ctx, db); err != nil {
			t.Fatal(err)
		}
	}
	run()
	def := storetest.Sale("s", 6)
	def.Spread = 2
	def, err := db.CreateSale(ctx, def)
	if err != nil {
		t.Fatal(err)
	}
	stock := admission.NewStock(admission.StockConfig{
		Client: guards.Client(), Server: func(shard keyspace.Shard) *redis.Client { return guards.Of(shard).Client() },
		Space: two, RequireVerified: true, Claimer: db,
	})
	if err := stock.Load(ctx, def, db.OrdersOf); err != nil {
		t.Fatal(err)
	}
	segments, of := admission.NewSegments(guards.Client(), two), spread.Sale{ID: "s", Spread: 2}
	mover := spread.NewMover(segments, db)
	setApart := func(m spread.Move) spread.Transfer {
		t.Helper()
		transfer, err := segments.SetApart(ctx, of, m)
		if err != nil || transfer == nil {
			t.Fatalf("%+v, %v", transfer, err)
		}
		return *transfer
	}
	lose := func(segment int) {
		t.Helper()
		shard := two.ShardOfSegment("s", segment)
		for _, key := range server.Client().Keys(ctx, fmt.Sprintf("sluice:{%d}:*", shard)).Val() {
			server.Client().Del(ctx, key)
		}
		run()
	}
	want := func(left ...int64) {
		t.Helper()
		if _, err := mover.Settle(ctx, of); err != nil {
			t.Fatal(err)
		}
		v, err := stock.View(ctx, "s")
		if err != nil || len(v.Segments) != 2 || v.Segments[0].Left != left[0] || v.Segments[1].Left != left[1] {
			t.Fatalf("%+v, %v; want %v left", v, err, left)
		}
		if report, err := audit.New(stock, db).Audit(ctx, "s"); err != nil || !report.Balanced || report.Stock != 6 {
			t.Fatalf("%+v, %v", report, err)
		}
	}
	want(3, 3)

	if _, err := db.Commit(ctx, "s", setApart(spread.Move{From: 0, To: 1, Units: 2})); err != nil {
		t.Fatal(err)
	}
	lose(0)
	want(1, 5)

	lost := setApart(spread.Move{From: 1, To: 0, Units: 4})
	lose(1)
	if _, err := db.Commit(ctx, "s", lost); err != nil {
		t.Fatal(err)
	}
	want(1, 5)

	buyer := ""
	for i := 0; buyer == ""; i++ {
		if name := fmt.Sprint("buyer", i); spread.Home(name, 2) == 1 {
			buyer = name
		}
	}
	shard := two.ShardOfSegment("s", 1)
	server.Client().HSet(ctx, shard.Buyers("s"), buyer, "77")
	run("s")
	m, err := keyspace.DecodeMessage(server.Client().LIndex(ctx, shard.Ready(), 0).Val())
	if err != nil || m.ID != sale.OrderID(77) || spread.SegmentOf(m.Serial) != 1 {
		t.Fatalf("the order that had only its slot: %+v, %v", m, err)
	}
	want(1, 4)
	if claims.claims != 6 { // two segments, in each of three rebuilds after the first
		t.Errorf("%d claims, want 6", claims.claims)
	}
}
