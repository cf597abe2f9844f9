package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"pgregory.net/rapid"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/test/testenv"
)

func (h *shop) returnUnits(t *testing.T, saleID string, orders ...sale.Order) []int64 {
	t.Helper()
	numbers, err := h.ReturnUnits(context.Background(), spread.Part{SaleID: saleID}, orders)
	if err != nil {
		t.Fatal(err)
	}
	return numbers
}

func (h *shop) wantLeft(t *testing.T, saleID string, left int64) {
	t.Helper()
	if v, err := h.View(context.Background(), saleID); err != nil || v.Left != left {
		t.Fatalf("%d left, %v; want %d", v.Left, err, left)
	}
}

func TestReturnUnitsReturnsEachUnitOnce(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		h.put(t, onSale("s", 2, 2))
		first := sale.Order{ID: h.want(t, "s", "ann", "1", sale.Accepted).OrderID, Buyer: "ann"}
		second := sale.Order{ID: h.want(t, "s", "ann", "2", sale.Accepted).OrderID, Buyer: "ann"}
		h.want(t, "s", "bob", "1", sale.SoldOut)

		numbers := h.returnUnits(
			t, "s", first, first, sale.Order{ID: 77, Buyer: "ann"}, sale.Order{ID: first.ID, Buyer: "bob"},
		)
		n := numbers[0]
		if n < 1 || !slices.Equal(numbers[:3], []int64{n, n, 0}) {
			t.Fatalf("return numbers %v", numbers)
		}
		h.wantLeft(t, "s", 1)
		if held := c.HGet(ctx, shard.Buyers("s"), "ann").Val(); held != ","+second.ID.String() {
			t.Fatalf("ann has slots %q", held)
		}
		if again := h.returnUnits(t, "s", first, second); again[0] != n || again[1] != n+1 {
			t.Fatalf("repeated: %v, want %d first", again, n)
		}
		h.wantLeft(t, "s", 2)
		if held, err := c.HGet(ctx, shard.Buyers("s"), "ann").Result(); err != nil || held != "" {
			t.Fatalf("ann has slots %q, %v; want an empty entry, which edges and loads read", held, err)
		}
		count, err := h.CountUnits(ctx, spread.Part{SaleID: "s"})
		slices.Sort(count.Returned)
		if err != nil || count.LastReturn != n+1 || !slices.Equal(count.Returned, []sale.OrderID{first.ID, second.ID}) {
			t.Fatalf("count %+v, %v", count, err)
		}
		if pending, err := h.PendingReturns(ctx, spread.Part{SaleID: "s"}); err != nil || len(pending) != 2 {
			t.Fatalf("pending %v, %v", pending, err)
		}
		for range 2 {
			orders := []sale.Order{first, second, {ID: 5, Buyer: "ann"}}
			if err := h.ConfirmReturns(ctx, spread.Part{SaleID: "s"}, orders); err != nil {
				t.Fatal(err)
			}
		}
		if numbers := h.returnUnits(t, "s", first, second); !slices.Equal(numbers, []int64{0, 0}) {
			t.Fatalf("after ConfirmReturns: %v", numbers)
		}
		h.wantLeft(t, "s", 2)

		// Replays return the same orders, new requests buy.
		if d := h.want(t, "s", "ann", "1", sale.Replayed); d.OrderID != first.ID {
			t.Fatalf("replay returned order %s", d.OrderID)
		}
		h.want(t, "s", "ann", "3", sale.Accepted)
		h.want(t, "s", "bob", "2", sale.Accepted)
		h.want(t, "s", "cid", "1", sale.SoldOut)
	})
}

func TestReturnUnitsNumbersManyOrdersInOrder(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		const n = 2*maxReturns + 7
		h := newShop(c)
		h.put(t, onSale("s", n, 1))
		orders := make([]sale.Order, n)
		for i := range orders {
			buyer := fmt.Sprint("b", i)
			orders[i] = sale.Order{ID: h.want(t, "s", buyer, "k", sale.Accepted).OrderID, Buyer: buyer}
		}
		numbers := h.returnUnits(t, "s", orders...)
		for i, number := range numbers {
			if number != numbers[0]+int64(i) {
				t.Fatalf("return %d has number %d, the first has %d", i, number, numbers[0])
			}
		}
		h.wantLeft(t, "s", n)
	})
}

func TestReturnUnitsAfterRedisLostTheSale(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		s := onSale("s", 5, 1)
		h.put(t, s)
		valid := sale.Order{
			ID: h.want(t, "s", "ann", "1", sale.Accepted).OrderID, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1,
			Status: sale.StatusCreated,
		}
		cancelled := sale.Order{
			ID: h.want(t, "s", "bob", "1", sale.Accepted).OrderID, SaleID: "s", Buyer: "bob", Slot: 1, Serial: 2,
			Status: sale.StatusCancelled,
		}
		before := h.returnUnits(t, "s", sale.Order{ID: h.want(t, "s", "cid", "1", sale.Accepted).OrderID, Buyer: "cid"})[0]
		if err := flushAll(ctx, c); err != nil {
			t.Fatal(err)
		}
		if _, err := h.ReturnUnits(ctx, spread.Part{SaleID: "s"}, []sale.Order{cancelled}); !errors.Is(err, ErrNotLoaded) {
			t.Fatalf("returned to a sale that is not loaded: %v", err)
		}
		err := h.Load(ctx, s, func(_ context.Context, _ spread.Part, yield func(sale.Order) error) error {
			return errors.Join(yield(valid), yield(cancelled))
		})
		if err != nil {
			t.Fatal(err)
		}
		h.wantLeft(t, "s", 4)
		if v, err := h.View(ctx, "s"); err != nil || v.Accepted != 2 {
			t.Fatalf("accepted %d, %v; want 2: a serial would repeat", v.Accepted, err)
		}
		count, err := h.CountUnits(ctx, spread.Part{SaleID: "s"})
		if err != nil || count.LastReturn <= before || !slices.Equal(count.Returned, []sale.OrderID{cancelled.ID}) {
			t.Fatalf("count %+v, %v; the last return before the loss had number %d", count, err, before)
		}
		if numbers := h.returnUnits(t, "s", cancelled); numbers[0] != count.LastReturn {
			t.Fatalf("return numbers %v, want %d: the load counted the unit as left", numbers, count.LastReturn)
		}
		h.wantLeft(t, "s", 4)
		h.want(t, "s", "bob", "2", sale.Accepted)
		h.want(t, "s", "ann", "2", sale.AlreadyBought)
		if numbers := h.returnUnits(t, "s", valid); numbers[0] != count.LastReturn+1 {
			t.Fatalf("the next return has numbers %v", numbers)
		}
	})
}

// Two processes load the same sale. The slower one has read an order before its cancellation, and the faster one after
// it. The slot therefore exists, and must be released without returning a second unit.
func TestReturnUnitsReleasesASlotOfASlowerLoad(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		s := onSale("s", 5, 1)
		o := sale.Order{ID: 700, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1, Status: sale.StatusCreated}
		if err := h.addBuyers(ctx, shard, "s", map[string]keyspace.Slots{"ann": "700"}); err != nil {
			t.Fatal(err)
		}
		o.Status = sale.StatusCancelled
		if err := h.Load(ctx, s,
			func(_ context.Context, _ spread.Part, yield func(sale.Order) error) error { return yield(o) }); err != nil {
			t.Fatal(err)
		}
		h.want(t, "s", "ann", "1", sale.AlreadyBought)
		if numbers := h.returnUnits(t, "s", o); numbers[0] < 1 {
			t.Fatalf("return numbers %v", numbers)
		}
		h.wantLeft(t, "s", 5)
		h.want(t, "s", "ann", "2", sale.Accepted)

		// The reverse: a slow load does not restore a returned order.
		returned := sale.Order{ID: h.want(t, "s", "bob", "1", sale.Accepted).OrderID, Buyer: "bob"}
		h.returnUnits(t, "s", returned)
		slots := map[string]keyspace.Slots{"bob": keyspace.Slots(returned.ID.String())}
		if err := h.addBuyers(ctx, shard, "s", slots); err != nil {
			t.Fatal(err)
		}
		h.want(t, "s", "bob", "2", sale.Accepted)
	})
}

func TestReturnUnitsThatFailsChangesNothing(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		h.put(t, onSale("s", 5, 1))
		o := sale.Order{ID: h.want(t, "s", "ann", "1", sale.Accepted).OrderID, Buyer: "ann"}
		c.LPush(ctx, shard.Returns("s"), "of another type")
		if _, err := h.ReturnUnits(ctx, spread.Part{SaleID: "s"}, []sale.Order{o}); !errors.Is(err, sale.ErrUnavailable) {
			t.Fatalf("error %v", err)
		}
		h.wantLeft(t, "s", 4)
		c.Del(ctx, shard.Returns("s"))
		h.returnUnits(t, "s", o)
		h.wantLeft(t, "s", 5)
	})
}

// Random purchases, returns in any grouping and repetition, and confirmations: after each step the units left and the
// slots equal those of a model that returns each order once.
func TestReturnUnitsAgreesWithModel(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		ctx := context.Background()
		rapid.Check(t, func(r *rapid.T) {
			if err := flushAll(ctx, c); err != nil {
				r.Fatal(err)
			}
			const stock, perBuyer = 6, 2
			h := newShop(c)
			if err := h.Load(ctx, onSale("s", stock, perBuyer), none); err != nil {
				r.Fatal(err)
			}
			var orders []sale.Order
			held, numbers := map[sale.OrderID]string{}, map[sale.OrderID]int64{}
			for step := range rapid.IntRange(1, 30).Draw(r, "steps") {
				switch rapid.IntRange(0, 3).Draw(r, "operation") {
				case 0, 1:
					buyer := rapid.SampledFrom([]string{"ann", "bob", "cid", "d,e"}).Draw(r, "buyer")
					mine := 0
					for _, b := range held {
						if b == buyer {
							mine++
						}
					}
					want := sale.Accepted
					switch {
					case mine >= perBuyer:
						want = sale.AlreadyBought
					case len(held) == stock:
						want = sale.SoldOut
					}
					d, err := h.Admit(
						ctx, Request{SaleID: "s", Buyer: buyer, Key: fmt.Sprint(step), KeyTTL: time.Minute, Fingerprint: "f"},
					)
					if err != nil || d.Outcome != want {
						r.Fatalf("buyer %s: %s, %v; want %s", buyer, d.Outcome, err, want)
					}
					if want == sale.Accepted {
						orders = append(orders, sale.Order{ID: d.OrderID, Buyer: buyer})
						held[d.OrderID] = buyer
					}
				case 2:
					if len(orders) == 0 {
						continue
					}
					batch := rapid.SliceOfN(rapid.SampledFrom(orders), 1, 4).Draw(r, "batch")
					got, err := h.ReturnUnits(ctx, spread.Part{SaleID: "s"}, batch)
					if err != nil {
						r.Fatal(err)
					}
					for i, o := range batch {
						if _, ok := held[o.ID]; ok {
							if slices.Contains(slices.Collect(maps.Values(numbers)), got[i]) || got[i] < 1 {
								r.Fatalf("return number %d is not new", got[i])
							}
							numbers[o.ID] = got[i]
							delete(held, o.ID)
						}
						if got[i] != numbers[o.ID] {
							r.Fatalf("order %s has number %d, want %d", o.ID, got[i], numbers[o.ID])
						}
					}
				case 3:
					for _, o := range orders {
						if _, known := numbers[o.ID]; known && rapid.Bool().Draw(r, "confirm") {
							if err := h.ConfirmReturns(ctx, spread.Part{SaleID: "s"}, []sale.Order{o}); err != nil {
								r.Fatal(err)
							}
							numbers[o.ID] = 0
						}
					}
				}
				v, err := h.View(ctx, "s")
				if err != nil || v.Left != int64(stock-len(held)) {
					r.Fatalf("%d left, %v; %d orders hold a unit", v.Left, err, len(held))
				}
			}
			slots := c.HGetAll(ctx, shard.Buyers("s")).Val()
			n := 0
			for buyer, text := range slots {
				for id := range strings.SplitSeq(text, ",") {
					if id == "" {
						continue
					}
					n++
					if parsed, err := sale.ParseOrderID(id); err != nil || held[parsed] != buyer {
						r.Fatalf("buyer %s has slots %q", buyer, text)
					}
				}
			}
			if n != len(held) {
				r.Fatalf("%d slots, want %d", n, len(held))
			}
		})
	})
}

// A sale is stored again after the clock of Redis was set back, for example by a rebuild after a failover. Rows have
// the numbers of earlier returns, so a later return has a higher number.
func TestReturnNumbersGrowAfterTheClockWasSetBack(t *testing.T) {
	mini := miniredis.RunT(t)
	c := testenv.NewClient(mini.Addr())
	t.Cleanup(func() { _ = c.Close() })
	h, now := newShop(c), time.Now()
	mini.SetTime(now)
	h.put(t, onSale("s", 5, 1))
	first := sale.Order{ID: h.want(t, "s", "ann", "1", sale.Accepted).OrderID, Buyer: "ann"}
	second := sale.Order{ID: h.want(t, "s", "bob", "1", sale.Accepted).OrderID, Buyer: "bob"}
	before := h.returnUnits(t, "s", first)[0]
	mini.SetTime(now.Add(-time.Hour))
	mini.Del(shard.Stock("s")) // Redis has lost a part of the sale
	h.put(t, onSale("s", 5, 1))
	if after := h.returnUnits(t, "s", second)[0]; after <= before {
		t.Errorf("return %d after return %d", after, before)
	}
}

// If a sale is stored twice within a second, its return numbers must not exceed the clock. A Redis that loses all data
// begins at the clock, and would assign higher numbers again.
func TestReturnNumbersBeginAtTheClock(t *testing.T) {
	mini := miniredis.RunT(t)
	c := testenv.NewClient(mini.Addr())
	t.Cleanup(func() { _ = c.Close() })
	h, now := newShop(c), time.Now()
	for i := range 2 {
		at := now.Add(time.Duration(i) * time.Millisecond)
		mini.SetTime(at)
		mini.Del(shard.Stock("s"))
		h.put(t, onSale("s", 5, 1))
		if number, want := mini.HGet(shard.Sale("s"), "returned"), strconv.FormatInt(at.UnixMicro(), 10); number != want {
			t.Errorf("numbers begin at %s, want %s", number, want)
		}
	}
}
