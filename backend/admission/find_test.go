package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

// With many sales, FindOrder reads one sale for an order with a cached sale.
func TestFindOrderReadsOnlyTheCachedSale(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		const many = 2*salesPerRead + 10
		var sales []sale.Sale
		for i := range many {
			sales = append(sales, onSale(fmt.Sprint("s", i), 10, 1))
		}
		if err := h.LoadAll(ctx, wholes(sales), none); err != nil {
			t.Fatal(err)
		}
		known := h.want(t, "s7", "ann", "k", sale.Accepted).OrderID
		found := h.want(t, "s8", "ann", "k2", sale.Accepted).OrderID
		reads := 0
		addHook(c, redisconn.Around(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
			for _, cmd := range cmds {
				if cmd.Name() == "hget" {
					reads++
				}
			}
			return next(ctx, cmds)
		}))
		find := func(buyer string, id sale.OrderID, saleID string, least, most int) {
			t.Helper()
			reads = 0
			o, err := h.FindOrder(ctx, buyer, id)
			if saleID == "" && !errors.Is(err, sale.ErrNotFound) ||
				saleID != "" && (err != nil || o.SaleID != saleID || o.Buyer != buyer || o.Slot != 1) {
				t.Errorf("order %s of buyer %s: %+v, %v", id, buyer, o, err)
			}
			if reads < least || reads > most {
				t.Errorf("%d sales were read, want %d to %d", reads, least, most)
			}
		}
		find("bob", known, "", many, many)
		h.Remember(known, "s7")
		find("ann", known, "s7", 1, 1)
		find("bob", known, "", 1, 1)
		find("ann", found, "s8", 1, many)
		find("ann", found, "s8", 1, 1)
	})
}

// One search runs at a time. A call that waits for it ends with its context.
func TestFindOrderRunsOneSearchAtATime(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		h.put(t, onSale("s", 10, 1))
		id := h.want(t, "s", "ann", "k", sale.Accepted).OrderID
		h.search[0] <- struct{}{} // a search is in progress
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if _, err := h.FindOrder(ctx, "ann", id); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("during another search: %v", err)
		}
		<-h.search[0]
		for range 2 { // a search without a result also ends
			if _, err := h.FindOrder(context.Background(), "bob", id); !errors.Is(err, sale.ErrNotFound) {
				t.Errorf("order of another buyer: %v", err)
			}
		}
	})
}

// A search in a shard that does not respond does not stop those in other shards.
func TestFindOrderWhileAnotherShardDoesNotRespond(t *testing.T) {
	space := keyspace.Space{Shards: 2}
	servers := [2]*testenv.Redis{testenv.StartRedis(t), testenv.StartRedis(t)}
	clients := [2]redisconn.Client{testenv.OpenPatient(t, servers[0].URL), testenv.OpenPatient(t, servers[1].URL)}
	f := NewFinder(NewStock(StockConfig{Space: space, Client: redisconn.Route(func(key string) redisconn.Client {
		shard, _ := keyspace.ShardOfKey(key)
		return clients[shard]
	})}))
	servers[0].Pause()
	var searching sync.WaitGroup
	searching.Go(func() { _, _ = f.FindOrder(t.Context(), "ann", sale.NewOrderID(time.Now(), 0)) })
	defer func() { servers[0].Resume(); searching.Wait() }()
	testenv.Eventually(t, time.Minute, "a search in the first shard", func() bool { return len(f.search[0]) == 1 })
	if _, err := f.FindOrder(t.Context(), "ann", sale.NewOrderID(time.Now(), 1)); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("an unknown order of the other shard: %v", err)
	}
}

// A sale with a key of the wrong type hides no order of another sale. An order that is not found may belong to it.
func TestFindOrderBesideASaleWithAnUnusableKey(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		for _, id := range []string{"a", "b", "c"} {
			h.put(t, onSale(id, 10, 1))
		}
		id := h.want(t, "b", "ann", "k", sale.Accepted).OrderID
		for _, broken := range []string{"a", "c"} {
			if err := c.SAdd(ctx, shard.Buyers(broken), "a set").Err(); err != nil {
				t.Fatal(err)
			}
			if o, err := NewFinder(h.Stock).FindOrder(ctx, "ann", id); err != nil || o.SaleID != "b" {
				t.Errorf("the buyers of sale %s are a set: %+v, %v", broken, o, err)
			}
		}
		_, err := NewFinder(h.Stock).FindOrder(ctx, "bob", id)
		if !errors.Is(err, sale.ErrUnavailable) || ConcernsOthers(err) {
			t.Errorf("an order that is not found: %v", err)
		}
	})
}

func TestOrderCacheIsBoundedAndKeepsTheLatest(t *testing.T) {
	w := NewOrderCache[string](10)
	for id := sale.OrderID(1); id <= 1000; id++ {
		w.Put(id, "s")
		for kept := max(1, id-9); kept <= id; kept++ {
			if saleID, _ := w.Get(kept); saleID != "s" {
				t.Fatalf("after %d orders, order %d is not cached", id, kept)
			}
		}
		if n := len(w.recent) + len(w.older); n > 20 {
			t.Fatalf("%d orders are cached", n)
		}
	}
	if _, cached := w.Get(1); cached {
		t.Error("the first of a thousand orders is cached")
	}
}
