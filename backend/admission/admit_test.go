package admission

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/test/testenv"
)

var shard = keyspace.Shard(0)

// onBoth runs the test over the embedded Redis and over a real one.
func onBoth(t *testing.T, test func(t *testing.T, c *redis.Client)) {
	t.Run("miniredis", func(t *testing.T) {
		c := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		t.Cleanup(func() { _ = c.Close() })
		test(t, c)
	})
	t.Run("redis", func(t *testing.T) { test(t, testenv.StartRedis(t).Client()) })
}

type house struct {
	*Admitter
	*Stock
	c *redis.Client
}

func newHouse(c *redis.Client) *house {
	return &house{Admitter: newAdmitter(c, c), Stock: NewStock(StockConfig{Client: c}), c: c}
}

// newAdmitter returns an Admitter that runs the script by client and leases order numbers by c.
func newAdmitter(client redis.Scripter, c *redis.Client) *Admitter {
	a, err := NewAdmitter(Config{Client: client, IDs: NewSequencer(c, keyspace.Space{}, time.Now)})
	if err != nil {
		panic(err)
	}
	return a
}

func onSale(id string, stock int64, perBuyer int) sale.Sale {
	return sale.Sale{
		ID: id, Title: "Thing", Price: sale.Price{Amount: 100, Currency: "EUR"}, Stock: stock, PerBuyer: perBuyer,
		OpensAt: time.Now().Add(-time.Hour).Truncate(time.Millisecond), Switch: sale.On, Version: 1,
	}
}

func none(func(sale.Order) error) error { return nil }

func (h *house) put(t *testing.T, def sale.Sale) {
	t.Helper()
	if err := h.Load(context.Background(), def, none); err != nil {
		t.Fatal(err)
	}
}

func (h *house) buy(t *testing.T, saleID, buyer, key string) Decision {
	t.Helper()
	d, err := h.Admit(context.Background(), Request{SaleID: saleID, Buyer: buyer, Key: key, KeyTTL: time.Minute, Fingerprint: "f"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (h *house) want(t *testing.T, saleID, buyer, key string, outcome sale.Outcome) Decision {
	t.Helper()
	d := h.buy(t, saleID, buyer, key)
	if d.Outcome != outcome {
		t.Fatalf("%s asks with key %q: %s, want %s", buyer, key, d.Outcome, outcome)
	}
	return d
}

func TestAdmitOutcomes(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h := newHouse(c)
		h.put(t, onSale("s", 2, 1))
		first := h.want(t, "s", "ann", "k1", sale.Accepted)
		if d := h.want(t, "s", "ann", "k1", sale.Replayed); d.OrderID != first.OrderID {
			t.Fatalf("a replay got order %s, want %s", d.OrderID, first.OrderID)
		}
		if d := h.want(t, "s", "ann", "k2", sale.AlreadyBought); d.OrderID != first.OrderID {
			t.Fatalf("already bought names order %s, want %s", d.OrderID, first.OrderID)
		}
		h.want(t, "s", "bob with a space", "k1", sale.Accepted)
		h.want(t, "s", "cid", "k1", sale.SoldOut)
		h.want(t, "nothing", "cid", "k1", sale.UnknownSale)
		if n := c.LLen(context.Background(), shard.Ready()).Val(); n != 2 {
			t.Fatalf("%d messages are ready, want 2", n)
		}
		if n := c.LLen(context.Background(), shard.Wake()).Val(); n != 1 {
			t.Fatalf("%d wake tokens, want 1", n)
		}
		m, err := keyspace.DecodeMessage(c.LIndex(context.Background(), shard.Ready(), 0).Val())
		if err != nil || m.Buyer != "bob with a space" || m.SaleID != "s" || m.Slot != 1 || m.Serial != 2 {
			t.Fatalf("the newest message is %+v, %v", m, err)
		}
	})
}

func TestAdmitWindowAndSwitch(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h := newHouse(c)
		ctx := context.Background()
		early := onSale("early", 1, 1)
		early.OpensAt = time.Now().Add(time.Hour).Truncate(time.Millisecond)
		h.put(t, early)
		d := h.want(t, "early", "ann", "k", sale.NotOpen)
		if !d.OpensAt.Equal(early.OpensAt) || d.RetryAfter < 59*time.Minute || d.RetryAfter > time.Hour {
			t.Fatalf("not open: opens at %s, in %s", d.OpensAt, d.RetryAfter)
		}
		late := onSale("late", 1, 1)
		late.ClosesAt = time.Now().Add(-time.Minute)
		h.put(t, late)
		h.want(t, "late", "ann", "k", sale.SaleClosed)

		s := onSale("s", 5, 1)
		h.put(t, s)
		h.want(t, "s", "ann", "k", sale.Accepted)
		s.Switch, s.Version = sale.Paused, 2
		if err := h.Update(ctx, s); err != nil {
			t.Fatal(err)
		}
		if d := h.want(t, "s", "bob", "k", sale.SalePaused); d.Version != 2 {
			t.Fatalf("paused by version %d, want 2", d.Version)
		}
		h.want(t, "s", "ann", "k", sale.Replayed) // the same request, the same answer
		h.want(t, "s", "ann", "k2", sale.AlreadyBought)
		s.Switch, s.Version = sale.Closed, 3
		if err := h.Update(ctx, s); err != nil {
			t.Fatal(err)
		}
		h.want(t, "s", "bob", "k", sale.SaleClosed)
		s.Switch, s.Version = sale.On, 2 // old news
		if err := h.Update(ctx, s); err != nil {
			t.Fatal(err)
		}
		h.want(t, "s", "bob", "k", sale.SaleClosed)
	})
}

func TestAdmitReplayedScriptTakesOneUnit(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h := newHouse(c)
		h.put(t, onSale("s", 5, 5))
		keys := []string{shard.Sale("s"), shard.Stock("s"), shard.Buyers("s"), shard.Ready(), shard.Wake(), shard.Dedup("ann", "k")}
		run := func() string {
			return h.script.Run(context.Background(), c, keys, "s", "6000000000000000001", "ann", "f", 1).Val().(string)
		}
		if got := run(); got != "accepted" {
			t.Fatal(got)
		}
		c.Del(context.Background(), shard.Dedup("ann", "k")) // even when its key has expired
		if got := run(); got != "accepted" {
			t.Fatalf("the same command again: %s", got)
		}
		if v, _ := h.View(context.Background(), "s"); v.Left != 4 || v.Accepted != 1 {
			t.Fatalf("left %d, accepted %d; want 4 and 1", v.Left, v.Accepted)
		}
	})
}

func TestAdmitKeyOfAnotherRequestIsRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h := newHouse(c)
		h.put(t, onSale("s", 5, 5))
		h.want(t, "s", "ann", "k", sale.Accepted)
		d, err := h.Admit(context.Background(), Request{SaleID: "s", Buyer: "ann", Key: "k", KeyTTL: time.Minute, Fingerprint: "other"})
		if err != nil || d.Outcome != sale.KeyReused {
			t.Fatalf("%s, %v", d.Outcome, err)
		}
	})
}

func TestAdmitSeveralPlaces(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h := newHouse(c)
		h.put(t, onSale("s", 10, 3))
		ids := []sale.OrderID{}
		for i := range 3 {
			ids = append(ids, h.want(t, "s", "ann", fmt.Sprint(i), sale.Accepted).OrderID)
		}
		h.want(t, "s", "ann", "more", sale.AlreadyBought)
		c.HSet(context.Background(), shard.Buyers("s"), "ann", ids[0].String()+",,"+ids[2].String()) // the second is given back
		h.want(t, "s", "ann", "again", sale.Accepted)
		m, err := keyspace.DecodeMessage(c.LIndex(context.Background(), shard.Ready(), 0).Val())
		if err != nil || m.Slot != 2 || m.Serial != 4 {
			t.Fatalf("the free place is 2, and this is acceptance 4; got %+v, %v", m, err)
		}
		h.want(t, "s", "ann", "yet again", sale.AlreadyBought)
	})
}

// A refusal writes nothing: not one byte reaches the append-only file.
func TestRefusalsWriteNothing(t *testing.T) {
	r := testenv.StartRedis(t, "--appendonly", "yes")
	c := r.Client()
	h := newHouse(c)
	h.put(t, onSale("s", 1, 1))
	early := onSale("early", 1, 1)
	early.OpensAt = time.Now().Add(time.Hour)
	h.put(t, early)
	h.want(t, "s", "ann", "k", sale.Accepted)

	aof := filepath.Join(r.Dir, "appendonlydir", "appendonly.aof.1.incr.aof")
	before, keys := size(t, aof), c.DBSize(context.Background()).Val()
	for i := range 200 {
		h.want(t, "s", fmt.Sprint("late-", i), "k", sale.SoldOut)
		h.want(t, "s", "ann", "other", sale.AlreadyBought)
		h.want(t, "s", "ann", "k", sale.Replayed)
		h.want(t, "early", fmt.Sprint("early-", i), "k", sale.NotOpen)
		h.want(t, "nothing", "ann", "k3", sale.UnknownSale)
	}
	if after := size(t, aof); after != before {
		t.Errorf("1000 refusals wrote %d bytes", after-before)
	}
	if now := c.DBSize(context.Background()).Val(); now != keys {
		t.Errorf("1000 refusals made %d keys", now-keys)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	f, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return f.Size()
}

func TestConcurrentBuyersGetExactlyTheStock(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h := newHouse(c)
		const stock, buyers, tries = 50, 100, 3
		h.put(t, onSale("s", stock, 1))
		pipe, err := redisconn.NewPipeline(c)
		if err != nil {
			t.Fatal(err)
		}
		a := newAdmitter(pipe, c)
		var mu sync.Mutex
		won := map[string]int{}
		seen := map[sale.OrderID]bool{}
		var wg sync.WaitGroup
		for b := range buyers {
			for k := range tries {
				wg.Go(func() {
					buyer := fmt.Sprint("buyer-", b)
					d, err := a.Admit(context.Background(), Request{SaleID: "s", Buyer: buyer, Key: fmt.Sprint(k), KeyTTL: time.Minute, Fingerprint: "f"})
					if err != nil {
						t.Error(err)
						return
					}
					if d.Outcome == sale.Accepted {
						mu.Lock()
						won[buyer]++
						if seen[d.OrderID] {
							t.Errorf("order id %s was made twice", d.OrderID)
						}
						seen[d.OrderID] = true
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		if len(won) != stock || len(seen) != stock {
			t.Fatalf("%d buyers got %d orders, want %d of each", len(won), len(seen), stock)
		}
		if n := c.LLen(context.Background(), shard.Ready()).Val(); n != stock {
			t.Fatalf("%d messages, want %d", n, stock)
		}
	})
}

// A queue key of another type takes no unit: what is answered with an error must not be accepted half.
func TestAdmitWritesNothingWhenTheQueueIsNoList(t *testing.T) {
	onBoth(t, func(t *testing.T, c *redis.Client) {
		h, ctx := newHouse(c), context.Background()
		h.put(t, onSale("s", 5, 1))
		c.Set(ctx, shard.Ready(), "junk", 0)
		r := Request{SaleID: "s", Buyer: "ann", Key: "k", KeyTTL: time.Minute, Fingerprint: "f"}
		if _, err := h.Admit(ctx, r); err == nil {
			t.Error("accepted without a queue")
		}
		c.Del(ctx, shard.Ready())
		if v, err := h.View(ctx, "s"); err != nil || v.Left != 5 || v.Accepted != 0 {
			t.Errorf("after the error: %+v, %v", v, err)
		}
		if d, err := h.Admit(ctx, r); err != nil || d.Outcome != sale.Accepted || c.LLen(ctx, shard.Ready()).Val() != 1 {
			t.Errorf("the same request again: %+v, %v", d, err)
		}
	})
}
