package admission

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
)

// newParts loads a sale with two segments and a sale in one shard, and returns a Stock that knows neither.
func newParts(t *testing.T, c redisconn.Client) (*Admitter, *Stock, sale.Sale) {
	t.Helper()
	ctx := context.Background()
	a, h, rows := newSpread(t, c, 6)
	def, _, err := rows.Sale(ctx, "s")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{h.shard(0).Sale("s"), h.shard(1).Sale("s"), h.shard(1).Stock("s")} {
		if err := c.Del(ctx, key).Err(); err != nil {
			t.Fatal(err)
		}
	}
	mover := spread.NewMover(h.Segments, rows)
	stock := newStock(StockConfig{Client: c, Space: h.space, Claimer: rows, Mover: mover}, c)
	if err := stock.Load(ctx, def, rows.OrdersOf); err != nil {
		t.Fatal(err)
	}
	if err := stock.Load(ctx, onSale("whole", 3, 1), rows.OrdersOf); err != nil {
		t.Fatal(err)
	}
	return a, newStock(StockConfig{Client: c, Space: h.space, Claimer: rows, Mover: mover}, c), def
}

// A sale with two segments is one sale for its readers.
func TestSegmentsAreReadAsOneSale(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		ctx := context.Background()
		a, stock, def := newParts(t, c)
		var orders []sale.Order
		for n := range 6 {
			buyer := buyerOf(n%2, n)
			d, err := a.Admit(ctx, Request{
				SaleID: "s", Spread: 2, Buyer: buyer, Key: "k", KeyTTL: time.Minute, Fingerprint: "f",
			})
			if err != nil || d.Outcome != sale.Accepted {
				t.Fatalf("%+v, %v", d, err)
			}
			orders = append(orders, sale.Order{ID: d.OrderID, SaleID: "s", Buyer: buyer})
			v, err := stock.View(ctx, "s")
			left := int64(5 - n)
			if err != nil || v.Left != left || v.Accepted != int64(n+1) || v.Stock != 6 || v.Spread != 2 ||
				len(v.Segments) != 2 || (v.State == sale.StateSoldOut) != (left == 0) {
				t.Fatalf("%+v, %v; want %d left", v, err, left)
			}
		}
		if k, err := stock.Spread(ctx, "whole"); err != nil || k != 0 {
			t.Errorf("a sale in one shard: %d, %v", k, err)
		}
		if _, err := stock.Spread(ctx, "unknown"); !errors.Is(err, ErrNotLoaded) {
			t.Errorf("an unknown sale: %v", err)
		}
		if all, err := stock.List(ctx); err != nil || len(all) != 2 {
			t.Errorf("%+v, %v", all, err)
		}
		if list, err := stock.BypassList(ctx, "s", 6); err != nil || list.Accepted != 6 || len(list.Sums) != 6 {
			t.Errorf("%+v, %v", list, err)
		}
		if _, err := stock.BypassList(ctx, "s", 5); !errors.Is(err, ErrBypassListTooLong) {
			t.Errorf("more holders than the limit: %v", err)
		}
		if have, err := stock.HaveSlots(ctx, orders); err != nil || !have[0] || !have[1] {
			t.Errorf("%v, %v", have, err)
		}
		for _, o := range orders[:2] {
			found, err := NewFinder(stock).FindOrder(ctx, o.Buyer, o.ID)
			held, heldErr := NewFinder(stock).OrdersHeld(ctx, o.Buyer, "s")
			if err != nil || found.SaleID != "s" || heldErr != nil || len(held) != 1 || held[0].ID != o.ID {
				t.Errorf("%+v, %v; %+v, %v", found, err, held, heldErr)
			}
		}
		if n, err := stock.Accepted(ctx, "s"); err != nil || n != 6 {
			t.Errorf("%d orders accepted, %v", n, err)
		}
		if n, err := stock.Accepted(ctx, "unknown"); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("an unknown sale has accepted %d, %v", n, err)
		}
		for n, part := range spread.PartsOf(def) {
			numbers, err := stock.ReturnUnits(ctx, part, []sale.Order{orders[n], {ID: 5, Buyer: "none"}})
			if err != nil || numbers[0] == 0 || numbers[1] != 0 {
				t.Fatalf("%v, %v", numbers, err)
			}
		}
		wantPending := func(want int) {
			t.Helper()
			for _, part := range spread.PartsOf(def) {
				if pending, err := stock.PendingReturns(ctx, part); err != nil || len(pending) != want {
					t.Errorf("segment %d: %v, %v", part.Segment, pending, err)
				}
			}
		}
		wantPending(1)
		for n, part := range spread.PartsOf(def) {
			if err := stock.ConfirmReturns(ctx, part, orders[n:n+1]); err != nil {
				t.Error(err)
			}
		}
		wantPending(0)
		if v, err := stock.View(ctx, "s"); err != nil || v.Left != 2 || v.State != sale.StateOpen {
			t.Errorf("%+v, %v", v, err)
		}
		def.Version, def.Switch = def.Version+1, sale.Paused
		if err := stock.UpdatePart(ctx, SalePart{def, 0}); err != nil {
			t.Fatal(err)
		}
		if v, err := stock.View(ctx, "s"); err != nil || v.State != sale.StateOpen || v.Version != def.Version-1 {
			t.Errorf("one segment has applied a pause: %+v, %v", v, err)
		}
		if err := stock.Update(ctx, def); err != nil {
			t.Fatal(err)
		}
		if v, err := stock.View(ctx, "s"); err != nil || v.State != sale.StatePaused || v.Version != def.Version {
			t.Errorf("both have: %+v, %v", v, err)
		}
		if err := stock.Remove(ctx, def); err != nil {
			t.Fatal(err)
		}
		if _, err := stock.View(ctx, "s"); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("a removed sale: %v", err)
		}
	})
}

// While a segment cannot be read, its units are missing in the view of the sale. The sale is then not reported as sold
// out, and edges get no bypass list.
func TestSegmentThatIsNotLoadedHidesItsUnits(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		ctx := context.Background()
		_, stock, def := newParts(t, c)
		shard := stock.ShardOf(SalePart{def, 1}.Part())
		c.HDel(ctx, shard.Sale("s"), "version") // as a rebuild does
		c.Set(ctx, stock.ShardOf(SalePart{def, 0}.Part()).Stock("s"), 0, 0)
		v, err := stock.View(ctx, "s")
		if err != nil || v.Left != 0 || len(v.Segments) != 1 || v.State != sale.StateOpen {
			t.Errorf("%+v, %v", v, err)
		}
		if _, err := stock.Accepted(ctx, "s"); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("accepted orders: %v", err)
		}
		if _, err := stock.BypassList(ctx, "s", 10); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("bypass list: %v", err)
		}
	})
}

// A segment that a rebuild holds does not delay the return of units to the other one.
func TestHeldSegmentDelaysItsOwnReturnsOnly(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		ctx := context.Background()
		a, stock, def := newParts(t, c)
		var orders []sale.Order
		for n := range 2 {
			buyer := buyerOf(n, n)
			d, err := a.Admit(ctx, Request{
				SaleID: "s", Spread: 2, Buyer: buyer, Key: "k", KeyTTL: time.Minute, Fingerprint: "f",
			})
			if err != nil || d.Outcome != sale.Accepted {
				t.Fatalf("%+v, %v", d, err)
			}
			orders = append(orders, sale.Order{ID: d.OrderID, SaleID: "s", Buyer: buyer})
		}
		held := stock.ShardOf(SalePart{def, 0}.Part()).Sale("s")
		c.HDel(ctx, held, "version")
		giveBack := func(n int) ([]int64, error) {
			return stock.ReturnUnits(ctx, SalePart{def, n}.Part(), orders[n:n+1])
		}
		if numbers, err := giveBack(0); !errors.Is(err, ErrNotLoaded) || numbers != nil {
			t.Fatalf("%v, %v", numbers, err)
		}
		numbers, err := giveBack(1)
		if err != nil || numbers[0] < 1 {
			t.Fatalf("%v, %v", numbers, err)
		}
		c.HSet(ctx, held, "version", def.Version)
		if first, err := giveBack(0); err != nil || first[0] < 1 {
			t.Fatalf("%v, %v", first, err)
		}
		if again, err := giveBack(1); err != nil || again[0] != numbers[0] {
			t.Fatalf("%v, %v; want %d again", again, err, numbers[0])
		}
		if v, err := stock.View(ctx, "s"); err != nil || v.Left != 6 {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// acceptedOrder returns the id of an order of a buyer in the sale of newParts.
func acceptedOrder(t *testing.T, a *Admitter, buyer string) sale.OrderID {
	t.Helper()
	d, err := a.Admit(t.Context(), Request{
		SaleID: "s", Spread: 2, Buyer: buyer, Key: "k", KeyTTL: time.Minute, Fingerprint: "f",
	})
	if err != nil || d.Outcome != sale.Accepted {
		t.Fatalf("%+v, %v", d, err)
	}
	return d.OrderID
}

// A confirmation accesses the shards of its orders only. A sale can have a thousand shards, and one may be down.
func TestReturnIsConfirmedInItsShardOnly(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		ctx := context.Background()
		a, stock, def := newParts(t, c)
		buyer := buyerOf(0, 0)
		id := acceptedOrder(t, a, buyer)
		home := SalePart{def, 0}.Part()
		numbers, err := stock.ReturnUnits(ctx, home, []sale.Order{{ID: id, SaleID: "s", Buyer: buyer}})
		if err != nil || numbers[0] < 1 {
			t.Fatalf("%v, %v", numbers, err)
		}
		c.LPush(ctx, stock.ShardOf(SalePart{def, 1}.Part()).Returns("s"), "every command fails")
		// After the number of shards has changed, an earlier order id belongs to another shard.
		earlier := id + 1
		c.HSet(ctx, stock.ShardOf(home).Returns("s"), earlier.String(), 7)
		orders := []sale.Order{{ID: id, Buyer: buyer}, {ID: earlier, Buyer: buyer}}
		if err := stock.ConfirmReturns(ctx, home, orders); err != nil {
			t.Error(err)
		}
		if n := c.HLen(ctx, stock.ShardOf(home).Returns("s")).Val(); n != 0 {
			t.Errorf("%d returns are not confirmed", n)
		}
	})
}

// FindOrder searches for an order in the shard that allocated its id only, because other shards may be down.
func TestOrderIsFoundInItsShardOnly(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		ctx := context.Background()
		a, stock, def := newParts(t, c)
		buyer := buyerOf(0, 0)
		id := acceptedOrder(t, a, buyer)
		down := stock.ShardOf(SalePart{def, 1}.Part())
		c.Del(ctx, down.Sales())
		c.Set(ctx, down.Sales(), "every command fails", 0)
		for _, of := range []string{buyer, "another buyer"} {
			o, err := NewFinder(stock).FindOrder(ctx, of, id)
			if found := err == nil && o.ID == id; found != (of == buyer) || !found && !errors.Is(err, sale.ErrNotFound) {
				t.Errorf("%s: %+v, %v", of, o, err)
			}
		}
	})
}

func TestParseSegment(t *testing.T) {
	for text, want := range map[string][2]int{"": {0, 0}, "0/2": {0, 2}, "999/1000": {999, 1000}} {
		if index, k, err := parseSegment(text); err != nil || index != want[0] || k != want[1] {
			t.Errorf("%q: %d, %d, %v", text, index, k, err)
		}
	}
	for _, text := range []string{"1", "2/2", "-1/2", "a/2", "0/b", "0/1", "/", "1/2/3"} {
		if _, _, err := parseSegment(text); err == nil {
			t.Errorf("%q was parsed", text)
		}
	}
}

// No refill runs, as is the case long before a sale opens. The process that wrote the restock may have stopped between
// any two segments, and two backends apply the restock concurrently.
func TestUpdateAppliesTheUnitsOfARestock(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		ctx := context.Background()
		_, h, rows := newSpread(t, c, 10)
		stock := newStock(StockConfig{Client: c, Space: h.space, Claimer: rows}, c)
		want := func(left int64) {
			t.Helper()
			v, err := stock.View(ctx, "s")
			if err != nil || v.Left != left || v.Segments[0].Units+v.Segments[1].Units != left {
				t.Fatalf("%+v, %v; want %d units left", v, err, left)
			}
		}
		restocked, err := rows.Restock(ctx, "s", 6, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := stock.UpdatePart(ctx, SalePart{restocked, 1}); err != nil {
			t.Fatal(err)
		}
		want(13)
		for range 2 { // the second call changes nothing
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					if err := stock.Update(ctx, restocked); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			want(16)
		}

		// An update also applies a transfer that was committed but not applied.
		of := spread.Sale{ID: "s", Spread: 2}
		out, err := h.SetApart(ctx, of, spread.Move{From: 0, To: 1, Units: 3})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rows.Commit(ctx, "s", *out); err != nil {
			t.Fatal(err)
		}
		paused, err := rows.SetSwitch(ctx, "s", sale.Paused)
		if err != nil {
			t.Fatal(err)
		}
		if err := stock.Update(ctx, paused); err != nil {
			t.Fatal(err)
		}
		want(16)

		// Without the allocations of SQL, a segment does not get the version of a restock.
		if restocked, err = rows.Restock(ctx, "s", 1, ""); err != nil {
			t.Fatal(err)
		}
		down := newStock(StockConfig{Client: c, Space: h.space, Claimer: noAllocations{rows}}, c)
		if err := down.Update(ctx, restocked); !errors.Is(err, sale.ErrUnavailable) {
			t.Fatalf("without SQL: %v", err)
		}
		if v, err := stock.View(ctx, "s"); err != nil || v.Version != paused.Version {
			t.Fatalf("%+v, %v", v, err)
		}
	})
}

type noAllocations struct{ Claimer }

func (noAllocations) Allocations(context.Context, string) ([]spread.Allocation, error) {
	return nil, sale.ErrUnavailable
}
