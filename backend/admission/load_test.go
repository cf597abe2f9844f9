package admission

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/test/testenv"
)

// LoadAll reads the queue of a shard once, and loads each sale with its rows and its queued orders.
func TestLoadAllReadsTheQueueOnce(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		const n = 30
		h, ctx := newShop(c), context.Background()
		var defs []sale.Sale
		rows := map[string][]sale.Order{}
		for i := range n {
			id := "s" + strconv.Itoa(i)
			defs = append(defs, onSale(id, 10, 1))
			for k := range i % 3 {
				rows[id] = append(rows[id], sale.Order{
					ID: sale.OrderID(1000*i + k + 1), SaleID: id, Buyer: "row" + strconv.Itoa(k), Slot: 1, Serial: int64(k + 1),
				})
			}
			if i%2 == 0 {
				o := sale.Order{ID: sale.OrderID(1000*i + 500), SaleID: id, Buyer: "queued", Slot: 1, Serial: 9}
				c.LPush(ctx, shard.Ready(), keyspace.EncodeMessage(o))
			}
		}
		h.put(t, defs[0]) // loaded before, with a purchase
		h.want(t, "s0", "ann", "k", sale.Accepted)
		reads := &countQueueReads{}
		addHook(c, testenv.Commands(reads.process))
		load := func(orders OrdersOf) error {
			return h.LoadAll(ctx, wholes(defs), orders)
		}
		yieldRows := func(_ context.Context, of spread.Part, yield func(sale.Order) error) error {
			for _, o := range rows[of.SaleID] {
				if err := yield(o); err != nil {
					return err
				}
			}
			return nil
		}
		broken := errors.New("unreadable row")
		err := load(func(ctx context.Context, of spread.Part, yield func(sale.Order) error) error {
			if of.SaleID == "s7" {
				return broken
			}
			return yieldRows(ctx, of, yield)
		})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "s7") {
			t.Errorf("a sale with an unreadable row: %v", err)
		}
		if reads.n != 1 {
			t.Errorf("the queue was read %d times for %d sales", reads.n, n)
		}
		versions, err := h.Versions(ctx, wholeParts("s0", "s6", "s7", "s8", "unknown"))
		if err != nil || len(versions) != 3 || versions[spread.Part{SaleID: "s6"}] != 1 {
			t.Fatalf("versions %v, %v", versions, err)
		}
		var read []string
		for range 2 { // the second call changes nothing
			if err := load(func(ctx context.Context, of spread.Part, yield func(sale.Order) error) error {
				read = append(read, of.SaleID)
				return yieldRows(ctx, of, yield)
			}); err != nil {
				t.Fatal(err)
			}
		}
		if len(read) != 1 || read[0] != "s7" { // rows that are read now may be cancelled, and their slots free
			t.Errorf("the rows of sales %v were read, want those of s7, which was not loaded", read)
		}
		for i, def := range defs {
			want := int64(10 - i%3)
			if i%2 == 0 {
				want--
			}
			if i == 0 {
				want = 8 // loaded before, and one order was accepted
			}
			if v, err := h.View(ctx, def.ID); err != nil || v.Left != want {
				t.Errorf("%s: %d left, want %d; %v", def.ID, v.Left, want, err)
			}
		}
		h.want(t, "s7", "row0", "k", sale.AlreadyBought)
	})
}

// LoadAll reads the queue once, also if a key of a sale has the wrong type, and loads the others.
func TestLoadAllBesideASaleWithAnUnusableKey(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		var defs []sale.Sale
		for i := range 9 {
			defs = append(defs, onSale("s"+strconv.Itoa(i), 10, 1))
		}
		c.SAdd(ctx, shard.Returns("s4"), "a set")
		reads := &countQueueReads{}
		addHook(c, testenv.Commands(reads.process))
		err := h.LoadAll(ctx, wholes(defs), none)
		if !errors.Is(err, sale.ErrUnavailable) || ConcernsOthers(err) || !strings.Contains(err.Error(), "sale s4") {
			t.Errorf("the error is %v", err)
		}
		if views, err := h.List(ctx); err != nil || len(views) != 8 || reads.n != 1 {
			t.Errorf("%d sales are loaded, %v; the queue was read %d times", len(views), err, reads.n)
		}
	})
}

// An order is cancelled after a slow load has read it. A faster load has read the cancellation and counts the unit as
// left.
func TestSlowLoadStoresNoOrderThatWasCancelled(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		order := sale.Order{ID: 800, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1}
		cancelled := order
		cancelled.Status = sale.StatusCancelled
		rows := func(o sale.Order) OrdersOf {
			return func(_ context.Context, _ spread.Part, yield func(sale.Order) error) error { return yield(o) }
		}
		err := h.Load(ctx, onSale("s", 5, 1), func(ctx context.Context, of spread.Part, yield func(sale.Order) error) error {
			if err := yield(order); err != nil {
				return err
			}
			if err := h.Load(ctx, onSale("s", 5, 1), rows(cancelled)); err != nil {
				return err
			}
			h.returnUnits(t, "s", cancelled)
			return h.ConfirmReturns(ctx, spread.Part{SaleID: "s"}, []sale.Order{cancelled})
		})
		if err != nil {
			t.Fatal(err)
		}
		h.wantLeft(t, "s", 5)
		h.want(t, "s", "ann", "k", sale.Accepted)
	})
}

func TestVersionsOmitIncompleteSales(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		for _, id := range []string{"whole", "no stock", "no definition"} {
			h.put(t, onSale(id, 1, 1))
		}
		c.Del(ctx, shard.Stock("no stock"), shard.Sale("no definition"))
		versions, err := h.Versions(ctx, wholeParts("whole", "no stock", "no definition"))
		if err != nil || len(versions) != 1 || versions[spread.Part{SaleID: "whole"}] != 1 {
			t.Errorf("versions %v, %v", versions, err)
		}
		stopped, stop := context.WithTimeout(ctx, 0)
		defer stop()
		if _, err := h.Versions(stopped, wholeParts("whole")); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("without Redis: %v", err)
		}
		if err := h.LoadAll(stopped, wholes([]sale.Sale{onSale("new", 1, 1)}), none); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("without Redis: %v", err)
		}
	})
}

// countQueueReads counts reads of the queue, which begin with the leases.
type countQueueReads struct{ n int }

func (w *countQueueReads) process(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if args := cmd.Args(); len(args) > 1 && cmd.Name() == "zrange" && args[1] == shard.Leases() {
		w.n++
	}
	return next(ctx, cmd)
}

func TestCountReadsTheReturnsOfEverySale(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		ids, want := []string{}, map[string]int{}
		for i := range salesPerRead + 3 {
			id := "s" + strconv.Itoa(i)
			ids = append(ids, id)
			want[id] = i % 2
			if i == salesPerRead+1 {
				want[id] = 2*readChunk + 5
			}
			fields := map[string]any{}
			for k := range want[id] {
				fields[strconv.Itoa(1_000_000*i+k+1)] = k + 1
			}
			if len(fields) > 0 {
				c.HSet(ctx, shard.Returns(id), fields)
			}
		}
		counts, err := h.CountShardUnits(ctx, 0, ids)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if got := len(counts[id].Returned); got < want[id] || want[id] < 2 && got > want[id] { // a scan can return one twice
				t.Errorf("%s: %d returns, want %d", id, got, want[id])
			}
		}
	})
}

func wholeParts(ids ...string) (parts []spread.Part) {
	for _, id := range ids {
		parts = append(parts, spread.Part{SaleID: id})
	}
	return parts
}

func wholes(defs []sale.Sale) (parts []SalePart) {
	for _, def := range defs {
		parts = append(parts, PartsOf(def)...)
	}
	return parts
}
