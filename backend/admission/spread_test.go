package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// newSpread makes a sale with two segments in both stores, and an Admitter that refills it.
func newSpread(t *testing.T, c redisconn.Client, stock int64) (*Admitter, *halves, *store.Store) {
	t.Helper()
	ctx := context.Background()
	rows := storetest.Open(t, storetest.SQLite(t))
	def := onSale("s", stock, 1)
	def.Spread = 2
	if _, err := rows.CreateSale(ctx, def); err != nil {
		t.Fatal(err)
	}
	h := newHalves(t, c)
	for i := range def.Spread {
		claimed, err := rows.Claim(ctx, "s", i)
		if err != nil {
			t.Fatal(err)
		}
		h.load(t, i, claimed, claimed.Units)
	}
	refillers := spread.NewRefillers(spread.NewMover(h.Segments, rows))
	a, err := NewAdmitter(Config{
		Client: c, Space: h.space, IDs: NewSequencer(c, h.space, time.Now),
		Refillers: refillers,
	})
	if err != nil {
		t.Fatal(err)
	}
	return a, h, rows
}

func buyerOf(segment, n int) string {
	for i := 0; ; i++ {
		buyer := fmt.Sprintf("buyer%d-%d", n, i)
		if spread.Home(buyer, 2) == segment {
			return buyer
		}
	}
}

// All buyers have the same home. Every unit of both segments is sold once, in that home, and the other buyers get sold
// out. A client that repeats a request after a 503 uses the same key.
func TestWholeStockIsSoldInOneHome(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		const stock, buyers = 40, 50
		a, h, rows := newSpread(t, c, stock)
		var all sync.WaitGroup
		var mu sync.Mutex
		results := map[sale.Outcome]int{}
		for n := range buyers {
			all.Go(func() {
				r := Request{
					SaleID: "s", Spread: 2, Buyer: buyerOf(0, n), Key: "k", KeyTTL: time.Minute, Fingerprint: "f",
				}
				d, err := a.Admit(context.Background(), r)
				for errors.Is(err, sale.ErrUnavailable) { // the machine is slow
					d, err = a.Admit(context.Background(), r)
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if d.Outcome == sale.Replayed { // of a purchase whose first answer was lost
					d.Outcome = sale.Accepted
				}
				results[d.Outcome]++
			})
		}
		all.Wait()
		if results[sale.Accepted] != stock || results[sale.SoldOut] != buyers-stock {
			t.Fatalf("results %v", results)
		}
		ctx := context.Background()
		for segment, want := range []int64{stock, 0} {
			if n := c.LLen(ctx, h.shard(segment).Ready()).Val(); n != want {
				t.Errorf("segment %d queued %d orders, want %d", segment, n, want)
			}
		}
		allocations, err := rows.Allocations(ctx, "s")
		if err != nil || allocations[0].Units != stock || allocations[1].Units != 0 {
			t.Fatalf("allocations %v, %v", allocations, err)
		}
	})
}

// While the other segment is held by a rebuild, a purchase in an empty home is not answered with sold out.
func TestHeldSegmentIsNotSoldOut(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		a, h, _ := newSpread(t, c, 2)
		buy := func(segment, n int) (Decision, error) {
			return a.Admit(context.Background(), Request{
				SaleID: "s", Spread: 2, Buyer: buyerOf(segment, n), Key: "k", KeyTTL: time.Minute, Fingerprint: "f",
			})
		}
		if d, err := buy(0, 1); err != nil || d.Outcome != sale.Accepted {
			t.Fatalf("%+v, %v", d, err)
		}
		version := c.HGet(context.Background(), h.shard(1).Sale("s"), "version").Val()
		c.HDel(context.Background(), h.shard(1).Sale("s"), "version")
		if d, err := buy(0, 2); !errors.Is(err, sale.ErrUnavailable) {
			t.Fatalf("%+v, %v", d, err)
		}
		c.HSet(context.Background(), h.shard(1).Sale("s"), "version", version)
		testenv.Eventually(t, time.Minute, "the purchase is decided", func() bool {
			d, err := buy(0, 3)
			if errors.Is(err, sale.ErrUnavailable) { // the machine is slow
				return false
			}
			if err != nil || d.Outcome != sale.Accepted {
				t.Fatalf("%+v, %v", d, err)
			}
			return true
		})
	})
}

func TestSpreadSaleNeedsARefiller(t *testing.T) {
	c := testenv.NewClient("127.0.0.1:1")
	defer c.Close()
	a := newAdmitter(c, c)
	_, err := a.Admit(t.Context(), Request{SaleID: "s", Spread: 2, Buyer: "ann"})
	if err == nil || !strings.Contains(err.Error(), "Refill") {
		t.Fatalf("error %v", err)
	}
}

func TestPartsHaveTheirShard(t *testing.T) {
	space := keyspace.Space{Shards: 5}
	var cache keyCache
	for segment := range 5 {
		k := cache.get(space, spread.Part{SaleID: "shoe", Segment: segment, Spread: 5})
		shard, target := space.ShardOfSegment("shoe", segment), fmt.Sprintf("shoe %d/5", segment)
		if k.shard != shard || k.target != target || k.sale != shard.Sale("shoe") || k.ready != shard.Ready() {
			t.Errorf("segment %d: %+v", segment, k)
		}
	}
	if k := cache.get(space, spread.Part{SaleID: "shoe"}); k.shard != space.ShardOf("shoe") || k.target != "shoe" {
		t.Errorf("the whole sale: %+v", k)
	}
}

// Each segment is on a server of its own. When one server stops or hangs, the other segment sells its units. A purchase
// that then finds that segment empty is not answered with sold out.
func TestOneOfTwoServersIsUnavailable(t *testing.T) {
	for name, end := range map[string]func(*testenv.Redis){"stops": (*testenv.Redis).Stop, "hangs": (*testenv.Redis).Pause} {
		t.Run(name, func(t *testing.T) {
			servers := []*testenv.Redis{testenv.StartRedis(t), testenv.StartRedis(t)}
			clients := []redisconn.Client{servers[0].Client(), servers[1].Client()}
			c := redisconn.Route(func(key string) redisconn.Client {
				shard, _ := keyspace.ShardOfKey(key)
				return clients[int(shard)%len(clients)]
			})
			a, h, _ := newSpread(t, c, 20)
			lost := servers[int(h.shard(1))%len(servers)]
			end(lost)
			t.Cleanup(lost.Resume)
			buy := func(segment, n int) (Decision, error) {
				return a.Admit(t.Context(), Request{
					SaleID: "s", Spread: 2, Buyer: buyerOf(segment, n), Key: "k", KeyTTL: time.Minute, Fingerprint: "f",
				})
			}
			for n := range 10 {
				if d, err := buy(0, n); err != nil || d.Outcome != sale.Accepted {
					t.Fatalf("purchase %d: %+v, %v", n, d, err)
				}
			}
			for segment := range 2 {
				if d, err := buy(segment, 99); !errors.Is(err, sale.ErrUnavailable) {
					t.Fatalf("home %d: %+v, %v", segment, d, err)
				}
			}
		})
	}
}
