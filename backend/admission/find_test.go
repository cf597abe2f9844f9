package admission

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/sale"
)

// countPlaces counts how many sales' buyers were looked at.
type countPlaces struct{ n int }

func (*countPlaces) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*countPlaces) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (w *countPlaces) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == "hget" {
				w.n++
			}
		}
		return next(ctx, cmds)
	}
}

// With many sales, an order that was accepted or found here is asked for in its sale alone.
func TestOrderThatIsRememberedIsLookedForInItsSaleAlone(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h, ctx := newHouse(c), context.Background()
		const many = 2*salesPerRead + 10
		var sales []sale.Sale
		for i := range many {
			sales = append(sales, onSale(fmt.Sprint("s", i), 10, 1))
		}
		if err := h.LoadAll(ctx, sales, func(string, func(sale.Order) error) error { return nil }); err != nil {
			t.Fatal(err)
		}
		told := h.want(t, "s7", "ann", "k", sale.Accepted).OrderID
		found := h.want(t, "s8", "ann", "k2", sale.Accepted).OrderID
		w := &countPlaces{}
		c.AddHook(w)
		look := func(buyer string, id sale.OrderID, saleID string, least, most int) {
			t.Helper()
			w.n = 0
			o, err := h.FindOrder(ctx, buyer, id)
			if saleID == "" && !errors.Is(err, sale.ErrNotFound) || saleID != "" && (err != nil || o.SaleID != saleID || o.Buyer != buyer || o.Slot != 1) {
				t.Errorf("order %s of %s: %+v, %v", id, buyer, o, err)
			}
			if w.n < least || w.n > most {
				t.Errorf("%d sales were looked at, want %d to %d", w.n, least, most)
			}
		}
		look("bob", told, "", many, many)
		h.Remember(told, "s7")
		look("ann", told, "s7", 1, 1)
		look("bob", told, "", 1, 1)
		look("ann", found, "s8", 1, many)
		look("ann", found, "s8", 1, 1)
	})
}

// One search goes on at a time, and who waits for it gives up in time.
func TestSearchesForOrdersWaitForEachOther(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h := newHouse(c)
		h.put(t, onSale("s", 10, 1))
		id := h.want(t, "s", "ann", "k", sale.Accepted).OrderID
		h.search <- struct{}{} // somebody searches
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if _, err := h.FindOrder(ctx, "ann", id); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("while somebody else searches: %v", err)
		}
		<-h.search
		for range 2 { // the first one leaves the way free, also when it finds nothing
			if _, err := h.FindOrder(context.Background(), "bob", id); !errors.Is(err, sale.ErrNotFound) {
				t.Errorf("an order of another: %v", err)
			}
		}
	})
}

func TestWhereaboutsAreBoundedAndKeepTheLatest(t *testing.T) {
	w := newSaleCache(10)
	for id := sale.OrderID(1); id <= 1000; id++ {
		w.put(id, "s")
		for kept := max(1, id-9); kept <= id; kept++ {
			if w.get(kept) != "s" {
				t.Fatalf("after %d orders, %d is forgotten", id, kept)
			}
		}
		if n := len(w.recent) + len(w.older); n > 20 {
			t.Fatalf("%d orders are remembered", n)
		}
	}
	if w.get(1) != "" {
		t.Error("the first of a thousand is remembered")
	}
}
