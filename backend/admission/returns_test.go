package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

func (h *house) give(t *testing.T, saleID string, orders ...sale.Order) []int64 {
	t.Helper()
	numbers, err := h.ReturnUnits(context.Background(), saleID, orders)
	if err != nil {
		t.Fatal(err)
	}
	return numbers
}

func (h *house) wantLeft(t *testing.T, saleID string, left int64) {
	t.Helper()
	if v, err := h.View(context.Background(), saleID); err != nil || v.Left != left {
		t.Fatalf("%d left, %v; want %d", v.Left, err, left)
	}
}

func TestGiveBackOnceHoweverOften(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h, ctx := newHouse(c), context.Background()
		h.put(t, onSale("s", 2, 2))
		first := sale.Order{ID: h.want(t, "s", "ann", "1", sale.Accepted).OrderID, Buyer: "ann"}
		second := sale.Order{ID: h.want(t, "s", "ann", "2", sale.Accepted).OrderID, Buyer: "ann"}
		h.want(t, "s", "bob", "1", sale.SoldOut)

		numbers := h.give(t, "s", first, first, sale.Order{ID: 77, Buyer: "ann"}, sale.Order{ID: first.ID, Buyer: "bob"})
		n := numbers[0]
		if n < 1 || !slices.Equal(numbers[:3], []int64{n, n, 0}) {
			t.Fatalf("numbers %v", numbers)
		}
		h.wantLeft(t, "s", 1)
		if held := c.HGet(ctx, shard.Buyers("s"), "ann").Val(); held != ","+second.ID.String() {
			t.Fatalf("ann holds %q", held)
		}
		if again := h.give(t, "s", first, second); again[0] != n || again[1] != n+1 {
			t.Fatalf("again: %v, the first was %d", again, n)
		}
		h.wantLeft(t, "s", 2)
		if held, err := c.HGet(ctx, shard.Buyers("s"), "ann").Result(); err != nil || held != "" {
			t.Fatalf("ann holds %q, %v; want an empty entry, which edges and slow loads look at", held, err)
		}
		census, err := h.CountUnits(ctx, "s")
		slices.Sort(census.Returned)
		if err != nil || census.LastReturn != n+1 || !slices.Equal(census.Returned, []sale.OrderID{first.ID, second.ID}) {
			t.Fatalf("%+v, %v", census, err)
		}
		if given, err := h.PendingReturns(ctx, "s"); err != nil || len(given) != 2 {
			t.Fatalf("%v, %v", given, err)
		}
		for range 2 {
			if err := h.ConfirmReturns(ctx, "s", []sale.OrderID{first.ID, second.ID, 5}); err != nil {
				t.Fatal(err)
			}
		}
		if numbers := h.give(t, "s", first, second); !slices.Equal(numbers, []int64{0, 0}) {
			t.Fatalf("after SQL knows: %v", numbers)
		}
		h.wantLeft(t, "s", 2)

		// The same requests again get the same orders; new ones buy.
		if d := h.want(t, "s", "ann", "1", sale.Replayed); d.OrderID != first.ID {
			t.Fatalf("replayed as %s", d.OrderID)
		}
		h.want(t, "s", "ann", "3", sale.Accepted)
		h.want(t, "s", "bob", "2", sale.Accepted)
		h.want(t, "s", "cid", "1", sale.SoldOut)
	})
}

func TestGiveBackOfManyKeepsTheirOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		const n = 2*maxReturns + 7
		h := newHouse(c)
		h.put(t, onSale("s", n, 1))
		orders := make([]sale.Order, n)
		for i := range orders {
			buyer := fmt.Sprint("b", i)
			orders[i] = sale.Order{ID: h.want(t, "s", buyer, "k", sale.Accepted).OrderID, Buyer: buyer}
		}
		numbers := h.give(t, "s", orders...)
		for i, number := range numbers {
			if number != numbers[0]+int64(i) {
				t.Fatalf("return %d has number %d, the first %d", i, number, numbers[0])
			}
		}
		h.wantLeft(t, "s", n)
	})
}

func TestGiveBackToASaleThatRedisLost(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h, ctx := newHouse(c), context.Background()
		s := onSale("s", 5, 1)
		h.put(t, s)
		kept := sale.Order{ID: h.want(t, "s", "ann", "1", sale.Accepted).OrderID, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1, Status: sale.StatusCreated}
		gone := sale.Order{ID: h.want(t, "s", "bob", "1", sale.Accepted).OrderID, SaleID: "s", Buyer: "bob", Slot: 1, Serial: 2, Status: sale.StatusCancelled}
		before := h.give(t, "s", sale.Order{ID: h.want(t, "s", "cid", "1", sale.Accepted).OrderID, Buyer: "cid"})[0]
		if err := c.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := h.ReturnUnits(ctx, "s", []sale.Order{gone}); !errors.Is(err, ErrNotLoaded) {
			t.Fatalf("given back to nobody: %v", err)
		}
		err := h.Load(ctx, s, func(yield func(sale.Order) error) error { return errors.Join(yield(kept), yield(gone)) })
		if err != nil {
			t.Fatal(err)
		}
		h.wantLeft(t, "s", 4)
		if v, err := h.View(ctx, "s"); err != nil || v.Accepted != 2 {
			t.Fatalf("accepted %d, %v: a serial would be given twice", v.Accepted, err)
		}
		census, err := h.CountUnits(ctx, "s")
		if err != nil || census.LastReturn <= before || !slices.Equal(census.Returned, []sale.OrderID{gone.ID}) {
			t.Fatalf("%+v, %v; a return before the loss had number %d", census, err, before)
		}
		if numbers := h.give(t, "s", gone); numbers[0] != census.LastReturn {
			t.Fatalf("numbers %v, want %d: the load has counted it as left", numbers, census.LastReturn)
		}
		h.wantLeft(t, "s", 4)
		h.want(t, "s", "bob", "2", sale.Accepted)
		h.want(t, "s", "ann", "2", sale.AlreadyBought)
		if numbers := h.give(t, "s", kept); numbers[0] != census.LastReturn+1 {
			t.Fatalf("the next return has number %v", numbers)
		}
	})
}

// Two processes load the same sale. The slower one has read an order as holding a unit that the faster one has read as
// cancelled: its buyer stands among the holders, and is freed without a second unit.
func TestGiveBackFreesAPlaceThatASlowerLoadPutIn(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h, ctx := newHouse(c), context.Background()
		s := onSale("s", 5, 1)
		o := sale.Order{ID: 700, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1, Status: sale.StatusCreated}
		if err := h.addBuyers(ctx, shard.Buyers("s"), map[string]keyspace.Slots{"ann": "700"}); err != nil {
			t.Fatal(err)
		}
		o.Status = sale.StatusCancelled
		if err := h.Load(ctx, s, func(yield func(sale.Order) error) error { return yield(o) }); err != nil {
			t.Fatal(err)
		}
		h.want(t, "s", "ann", "1", sale.AlreadyBought)
		if numbers := h.give(t, "s", o); numbers[0] < 1 {
			t.Fatalf("numbers %v", numbers)
		}
		h.wantLeft(t, "s", 5)
		h.want(t, "s", "ann", "2", sale.Accepted)

		// And the other way round: what was given back is not put in again by somebody who is slow.
		given := sale.Order{ID: h.want(t, "s", "bob", "1", sale.Accepted).OrderID, Buyer: "bob"}
		h.give(t, "s", given)
		if err := h.addBuyers(ctx, shard.Buyers("s"), map[string]keyspace.Slots{"bob": keyspace.Slots(given.ID.String())}); err != nil {
			t.Fatal(err)
		}
		h.want(t, "s", "bob", "2", sale.Accepted)
	})
}

func TestGiveBackThatFailsChangesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h, ctx := newHouse(c), context.Background()
		h.put(t, onSale("s", 5, 1))
		o := sale.Order{ID: h.want(t, "s", "ann", "1", sale.Accepted).OrderID, Buyer: "ann"}
		c.LPush(ctx, shard.Returns("s"), "of another type")
		if _, err := h.ReturnUnits(ctx, "s", []sale.Order{o}); !errors.Is(err, sale.ErrUnavailable) {
			t.Fatalf("%v", err)
		}
		h.wantLeft(t, "s", 4)
		c.Del(ctx, shard.Returns("s"))
		h.give(t, "s", o)
		h.wantLeft(t, "s", 5)
	})
}

// Random purchases, returns in any grouping and repetition, and forgetting: at each step the units left and the places
// held are those of a model that gives each order back once.
func TestGiveBackAgreesWithModel(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		ctx := context.Background()
		rapid.Check(t, func(r *rapid.T) {
			if err := c.FlushAll(ctx).Err(); err != nil {
				r.Fatal(err)
			}
			const stock, perBuyer = 6, 2
			h := newHouse(c)
			if err := h.Load(ctx, onSale("s", stock, perBuyer), none); err != nil {
				r.Fatal(err)
			}
			var orders []sale.Order
			held, numbers := map[sale.OrderID]string{}, map[sale.OrderID]int64{}
			for step := range rapid.IntRange(1, 30).Draw(r, "steps") {
				switch rapid.IntRange(0, 3).Draw(r, "do") {
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
					d, err := h.Admit(ctx, Request{SaleID: "s", Buyer: buyer, Key: fmt.Sprint(step), KeyTTL: time.Minute, Fingerprint: "f"})
					if err != nil || d.Outcome != want {
						r.Fatalf("%s buys: %s, %v; want %s", buyer, d.Outcome, err, want)
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
					got, err := h.ReturnUnits(ctx, "s", batch)
					if err != nil {
						r.Fatal(err)
					}
					for i, o := range batch {
						if _, ok := held[o.ID]; ok {
							if slices.Contains(slices.Collect(maps.Values(numbers)), got[i]) || got[i] < 1 {
								r.Fatalf("number %d is not new", got[i])
							}
							numbers[o.ID] = got[i]
							delete(held, o.ID)
						}
						if got[i] != numbers[o.ID] {
							r.Fatalf("order %s has number %d, want %d", o.ID, got[i], numbers[o.ID])
						}
					}
				case 3:
					for _, id := range slices.Sorted(maps.Keys(numbers)) {
						if rapid.Bool().Draw(r, "forget") {
							if err := h.ConfirmReturns(ctx, "s", []sale.OrderID{id}); err != nil {
								r.Fatal(err)
							}
							numbers[id] = 0
						}
					}
				}
				v, err := h.View(ctx, "s")
				if err != nil || v.Left != int64(stock-len(held)) {
					r.Fatalf("%d left, %v; %d held", v.Left, err, len(held))
				}
			}
			places := c.HGetAll(ctx, shard.Buyers("s")).Val()
			n := 0
			for buyer, text := range places {
				for id := range strings.SplitSeq(text, ",") {
					if id == "" {
						continue
					}
					n++
					if parsed, err := sale.ParseOrderID(id); err != nil || held[parsed] != buyer {
						r.Fatalf("%s holds %q", buyer, text)
					}
				}
			}
			if n != len(held) {
				r.Fatalf("%d places held, want %d", n, len(held))
			}
		})
	})
}
