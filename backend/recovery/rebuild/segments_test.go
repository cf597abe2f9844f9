package rebuild_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"sluice/backend/admission"
	"sluice/backend/audit"
	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/recovery/guard"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// suspendedClaims checks that a segment is suspended in Redis when its allocation is claimed.
type suspendedClaims struct {
	rebuild.Store
	t      *testing.T
	client redisconn.Client
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

// segments is a sale "s" with several segments, each in its own shard of one Redis, and the rebuilder of the shards.
type segments struct {
	*testing.T
	ctx      context.Context
	space    keyspace.Space
	server   *testenv.Redis
	url      string // of the database
	db       *database
	guards   *guard.Shards
	claims   *suspendedClaims
	rebuild  *rebuild.Rebuilder
	stock    *admission.Stock
	segments *admission.Segments
	mover    *spread.Mover
	of       spread.Sale
	units    int64
	accepted int // calls of accept
}

func newSegments(t *testing.T, k int, units int64) *segments {
	t.Helper()
	h := &segments{
		T: t, ctx: t.Context(), space: keyspace.Space{Shards: k}, server: testenv.StartRedis(t),
		url: storetest.SQLite(t), of: spread.Sale{ID: "s", Spread: k}, units: units,
	}
	h.db = openDatabase(t, h.url)
	h.guards = openGuards(t, h.server.URL, h.space)
	h.claims = &suspendedClaims{Store: h.db, t: t, client: h.server.Client(), space: h.space}
	h.rebuild = newRebuilder(t, rebuild.Config{Pinner: h.guards, Store: h.claims, Space: h.space})
	h.run()
	def := storetest.Sale("s", units)
	def.Spread = k
	def, err := h.db.CreateSale(h.ctx, def)
	h.check(err)
	h.stock = admission.NewStock(admission.StockConfig{
		Client: h.guards.Client(), Server: func(shard keyspace.Shard) redisconn.Client { return h.guards.Of(shard).Client() },
		Space: h.space, Deployment: h.guards.Deployment, Claimer: h.db,
	})
	h.check(h.stock.Load(h.ctx, def, h.db.OrdersOf))
	h.segments = admission.NewSegments(h.guards.Client(), h.space, nil)
	h.mover = spread.NewMover(h.segments, h.db)
	return h
}

func (h *segments) check(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *segments) run(only ...string) {
	h.Helper()
	h.check(h.rebuild.Run(h.ctx, only...))
	h.check(h.guards.Check(h.ctx, h.db))
}

func (h *segments) setApart(m spread.Move) spread.Transfer {
	h.Helper()
	transfer, err := h.segments.SetApart(h.ctx, h.of, m)
	if err != nil || transfer == nil {
		h.Fatalf("%+v, %v", transfer, err)
	}
	return *transfer
}

// lose empties the shard of a segment and rebuilds it.
func (h *segments) lose(segment int) {
	h.Helper()
	shard := h.space.ShardOfSegment("s", segment)
	for _, key := range h.server.Client().Keys(h.ctx, fmt.Sprintf("sluice:{%d}:*", shard)).Val() {
		h.server.Client().Del(h.ctx, key)
	}
	h.run()
}

// restoreDatabase replaces the database by a backup. Redis stays as it is, and is not rebuilt yet.
func (h *segments) restoreDatabase(backup string) {
	h.Helper()
	h.db = openDatabase(h.T, backup)
	h.claims.Store, h.mover = h.db, spread.NewMover(h.segments, h.db)
}

// accept adds n orders of buyers of a segment to Redis. They are queued.
func (h *segments) accept(segment, n int) {
	h.Helper()
	shard, orders := h.space.ShardOfSegment("s", segment), make([]sale.Order, n)
	for i := range orders {
		h.accepted++
		id := sale.NewOrderID(time.Now(), uint32(h.accepted))
		orders[i] = sale.Order{ID: id, SaleID: "s", Buyer: h.buyer(segment, h.accepted)}
	}
	restorer := rebuild.NewRestorer(h.guards.Of(shard), h.guards.Client(), shard, h.db)
	_, err := restorer.RestoreOrders(h.ctx, orders)
	h.check(err)
}

// want settles the sale, and compares the units left. The sale must balance.
func (h *segments) want(left ...int64) {
	h.Helper()
	_, err := h.mover.Settle(h.ctx, h.of)
	h.check(err)
	v, err := h.stock.View(h.ctx, "s")
	got := make([]int64, len(v.Segments))
	for i, s := range v.Segments {
		got[i] = s.Left
	}
	if err != nil || !slices.Equal(got, left) {
		h.Fatalf("%+v, %v; want %v left", v, err, left)
	}
	report, err := audit.New(h.stock, h.db).Audit(h.ctx, "s")
	if err != nil || !report.Balanced || report.Stock != h.units {
		h.Fatalf("%+v, %v", report, err)
	}
}

// buyer returns the n-th name of a buyer with this home.
func (h *segments) buyer(segment, n int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf("buyer%d-%d", n, i); spread.Home(name, h.of.Spread) == segment {
			return name
		}
	}
}

// Each segment of a sale is rebuilt from its allocation: a transfer that is committed counts as moved, and one that is
// not stays in its source. An order that had only its slot is queued again, with a serial of its segment.
func TestSegmentsAreRebuiltSeparately(t *testing.T) {
	h := newSegments(t, 2, 6)
	h.want(3, 3)

	_, err := h.db.Commit(h.ctx, "s", h.setApart(spread.Move{From: 0, To: 1, Units: 2}))
	h.check(err)
	h.lose(0)
	h.want(1, 5)

	lost := h.setApart(spread.Move{From: 1, To: 0, Units: 4})
	h.lose(1)
	_, err = h.db.Commit(h.ctx, "s", lost)
	h.check(err)
	h.want(1, 5)

	shard := h.space.ShardOfSegment("s", 1)
	h.server.Client().HSet(h.ctx, shard.Buyers("s"), h.buyer(1, 0), "77")
	h.run("s")
	m, err := keyspace.DecodeMessage(h.server.Client().LIndex(h.ctx, shard.Ready(), 0).Val())
	if err != nil || m.ID != sale.OrderID(77) || m.Serial <= (spread.Part{Segment: 1, Spread: 2}).Base() {
		t.Fatalf("the order that had only its slot: %+v, %v", m, err)
	}
	h.want(1, 4)
	if h.claims.claims != 6 { // two segments, in each of three rebuilds after the first
		t.Errorf("%d claims, want 6", h.claims.claims)
	}
}

// An order that lost its unit to another one is retried when its segment has a unit. Its row belongs to the segment:
// the audit counts it there, and a rebuild keeps the slot of its buyer.
func TestRetriedOrderWithoutUnitStaysInItsSegment(t *testing.T) {
	h := newSegments(t, 2, 2)
	shard := h.space.ShardOfSegment("s", 1)
	orders := []sale.Order{
		{ID: sale.NewOrderID(time.Now(), 1), SaleID: "s", Buyer: h.buyer(1, 1)},
		{ID: sale.NewOrderID(time.Now(), 2), SaleID: "s", Buyer: h.buyer(1, 2)},
	}
	restorer := rebuild.NewRestorer(h.guards.Of(shard), h.guards.Client(), shard, h.db)
	_, err := restorer.RestoreOrders(h.ctx, orders) // the segment has one unit
	h.check(err)
	list := queue.NewList(h.guards.Client(), shard, queue.Config{})
	if letter, err := list.DeadLetter(h.ctx, orders[1].ID); err != nil || !letter.Unbacked {
		t.Fatalf("%+v, %v", letter, err)
	}
	_, err = h.mover.Move(h.ctx, h.of, spread.Move{From: 0, To: 1, Units: 1})
	h.check(err)
	h.check(list.RetryDead(h.ctx, orders[1].ID))
	h.want(0, 0)
	batch, _, err := queuetest.Take(h.ctx, list, 10, "")
	h.check(err)
	h.check(h.db.Write(h.ctx, batch.Messages))
	_, err = list.Ack(h.ctx, batch.ID)
	h.check(err)
	h.want(0, 0)
	h.lose(1)
	h.want(0, 0)
	if have, err := h.stock.HaveSlots(h.ctx, orders); err != nil || !have[0] || !have[1] {
		t.Errorf("slots %v, %v", have, err)
	}
}

// A database that was restored from a backup has the allocations from before the last moves. The orders of a segment
// that got units since then keep their units, and the other segment does not sell them again.
func TestOrdersKeepMovedUnitsInARestoredDatabase(t *testing.T) {
	for name, move := range map[string]func(h *segments){
		"moved": func(h *segments) {
			_, err := h.mover.Move(h.ctx, h.of, spread.Move{From: 0, To: 1, Units: 2})
			h.check(err)
		},
		"committed, and the source has not applied it": func(h *segments) {
			allocations, err := h.db.Commit(h.ctx, "s", h.setApart(spread.Move{From: 0, To: 1, Units: 2}))
			h.check(err)
			h.check(h.segments.Apply(h.ctx, h.of, 1, allocations[1]))
		},
		"moved, and a move of the remaining unit is unfinished": func(h *segments) {
			_, err := h.mover.Move(h.ctx, h.of, spread.Move{From: 0, To: 1, Units: 2})
			h.check(err)
			h.setApart(spread.Move{From: 0, To: 1, Units: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newSegments(t, 2, 6)
			older := backupOf(t, h.url)
			move(h)
			h.accept(1, 5)
			h.restoreDatabase(older)
			source := h.space.ShardOfSegment("s", 0)
			h.check(h.rebuild.RunIf(h.ctx, source, func(context.Context) bool { return true }))
			if left := h.server.Client().Get(h.ctx, source.Stock("s")).Val(); left != "1" {
				t.Errorf("the source is rebuilt first, and has %s units left, want 1", left)
			}
			h.run()
			h.want(1, 0)
			for segment := range 2 {
				list := queue.NewList(h.guards.Client(), h.space.ShardOfSegment("s", segment), queue.Config{})
				if letters, _, err := list.DeadLetters(h.ctx, queue.DeadQuery{Limit: 9}); err != nil || len(letters) > 0 {
					t.Errorf("dead letters %+v, %v", letters, err)
				}
			}
		})
	}
}

// exchanged is the ledger of a database that is replaced while a process uses it.
type exchanged struct{ spread.Ledger }

// Purchases begin before the rebuild of a restored database, for example after a failover to a standby without the last
// commits. Units that were moved and sold since are not on sale again.
func TestRefillOfARestoredDatabaseSellsNoUnitTwice(t *testing.T) {
	for name, running := range map[string]bool{"a process that starts": false, "a process that has read the segments": true} {
		t.Run(name, func(t *testing.T) {
			h := newSegments(t, 3, 6)
			older := backupOf(t, h.url)
			_, err := h.mover.Move(h.ctx, h.of, spread.Move{From: 2, To: 1, Units: 2})
			h.check(err)
			h.accept(1, 4)
			ledger := &exchanged{h.db}
			mover := spread.NewMover(h.segments, ledger)
			if running {
				_, err := mover.Settle(h.ctx, h.of)
				h.check(err)
			}
			h.restoreDatabase(older)
			ledger.Ledger = h.db
			for range 3 { // rounds of a purchase that waits in segment 2
				if !running {
					states, err := mover.Settle(h.ctx, h.of)
					if states != nil || !errors.Is(err, spread.ErrOlder) {
						t.Errorf("%+v, %v; want %v", states, err, spread.ErrOlder)
					}
				}
				made, err := mover.Move(h.ctx, h.of, spread.Move{From: 0, To: 2, Units: 1})
				if made.Units > 0 && !errors.Is(err, spread.ErrOlder) {
					t.Errorf("%+v, %v; want %v", made, err, spread.ErrOlder)
				}
			}
			if left := h.server.Client().Get(h.ctx, h.space.ShardOfSegment("s", 2).Stock("s")).Val(); left != "0" {
				t.Errorf("%s units are on sale in the segment that gave its units away", left)
			}
			h.run()
			v, err := h.stock.View(h.ctx, "s")
			if err != nil || v.Left != 2 {
				t.Fatalf("%+v, %v; want 2 left", v, err)
			}
			_, err = h.mover.Settle(h.ctx, h.of)
			h.check(err)
			report, err := audit.New(h.stock, h.db).Audit(h.ctx, "s")
			if err != nil || !report.Balanced || report.Left != 2 {
				t.Fatalf("%+v, %v", report, err)
			}
		})
	}
}
