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
	"sluice/backend/spread"
	"sluice/test/testenv"
)

var shard = keyspace.Shard(0)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// onEachRedis runs test on the embedded Redis, on a Redis server, and on a Redis Cluster.
func onEachRedis(t *testing.T, test func(t *testing.T, c redisconn.Client)) {
	t.Run("miniredis", func(t *testing.T) {
		c := testenv.NewClient(miniredis.RunT(t).Addr())
		t.Cleanup(func() { _ = c.Close() })
		test(t, c)
	})
	t.Run("redis", func(t *testing.T) { test(t, testenv.StartRedis(t).Client()) })
	t.Run("cluster", func(t *testing.T) {
		c := clusterClient(t)
		if err := flushAll(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		test(t, c)
	})
}

// shop is an Admitter and a Stock over one Redis.
type shop struct {
	*Admitter
	*Stock
	*Finder
	c redisconn.Client
}

func newShop(c redisconn.Client) *shop {
	stock := newStock(StockConfig{Client: c}, c)
	return &shop{newAdmitter(c, c), stock, NewFinder(stock), c}
}

// newAdmitter returns an Admitter that runs the script by client and leases order numbers by c.
func newAdmitter(client redis.Scripter, c redisconn.Client) *Admitter {
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

func none(context.Context, spread.Part, func(sale.Order) error) error { return nil }

func (h *shop) put(t *testing.T, def sale.Sale) {
	t.Helper()
	if err := h.Load(context.Background(), def, none); err != nil {
		t.Fatal(err)
	}
}

func (h *shop) buy(t *testing.T, saleID, buyer, key string) Decision {
	t.Helper()
	d, err := h.Admit(
		context.Background(), Request{SaleID: saleID, Buyer: buyer, Key: key, KeyTTL: time.Minute, Fingerprint: "f"},
	)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (h *shop) want(t *testing.T, saleID, buyer, key string, outcome sale.Outcome) Decision {
	t.Helper()
	d := h.buy(t, saleID, buyer, key)
	if d.Outcome != outcome {
		t.Fatalf("buyer %s, key %q: %s, want %s", buyer, key, d.Outcome, outcome)
	}
	return d
}

func TestAdmitOutcomes(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		h.put(t, onSale("s", 2, 1))
		first := h.want(t, "s", "ann", "k1", sale.Accepted)
		if d := h.want(t, "s", "ann", "k1", sale.Replayed); d.OrderID != first.OrderID {
			t.Fatalf("replay returned order %s, want %s", d.OrderID, first.OrderID)
		}
		if d := h.want(t, "s", "ann", "k2", sale.AlreadyBought); d.OrderID != first.OrderID {
			t.Fatalf("already_bought returned order %s, want %s", d.OrderID, first.OrderID)
		}
		h.want(t, "s", "bob with a space", "k1", sale.Accepted)
		h.want(t, "s", "cid", "k1", sale.SoldOut)
		h.want(t, "nothing", "cid", "k1", sale.UnknownSale)
		if n := c.LLen(context.Background(), shard.Ready()).Val(); n != 2 {
			t.Fatalf("%d ready messages, want 2", n)
		}
		if n := c.LLen(context.Background(), shard.Wake()).Val(); n != 1 {
			t.Fatalf("%d wake tokens, want 1", n)
		}
		m, err := keyspace.DecodeMessage(c.LIndex(context.Background(), shard.Ready(), 0).Val())
		if err != nil || m.Buyer != "bob with a space" || m.SaleID != "s" || m.Slot != 1 || m.Serial != 2 {
			t.Fatalf("newest message %+v, %v", m, err)
		}
	})
}

func TestAdmitWindowAndSwitch(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		ctx := context.Background()
		early := onSale("early", 1, 1)
		early.OpensAt = time.Now().Add(time.Hour).Truncate(time.Millisecond)
		h.put(t, early)
		d := h.want(t, "early", "ann", "k", sale.NotOpen)
		if !d.OpensAt.Equal(early.OpensAt) || d.RetryAfter < 59*time.Minute || d.RetryAfter > time.Hour {
			t.Fatalf("not_open: opens at %s, in %s", d.OpensAt, d.RetryAfter)
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
			t.Fatalf("paused with version %d, want 2", d.Version)
		}
		h.want(t, "s", "ann", "k", sale.Replayed) // replays get their order while the sale is paused
		h.want(t, "s", "ann", "k2", sale.AlreadyBought)
		s.Switch, s.Version = sale.Closed, 3
		if err := h.Update(ctx, s); err != nil {
			t.Fatal(err)
		}
		h.want(t, "s", "bob", "k", sale.SaleClosed)
		s.Switch, s.Version = sale.On, 2 // an older version
		if err := h.Update(ctx, s); err != nil {
			t.Fatal(err)
		}
		h.want(t, "s", "bob", "k", sale.SaleClosed)
	})
}

func TestAdmitReplayedScriptTakesOneUnit(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		h.put(t, onSale("s", 5, 5))
		keys := []string{
			shard.Sale("s"), shard.Stock("s"), shard.Buyers("s"), shard.Ready(), shard.Wake(), shard.Dedup("ann", "k"),
		}
		run := func() string {
			return h.script.Run(context.Background(), c, keys, "s", "", 0, "", "6000000000000000001", "ann", "f 1").Val().(string)
		}
		if got := run(); got != "accepted" {
			t.Fatal(got)
		}
		c.Del(context.Background(), shard.Dedup("ann", "k")) // as if the key had expired
		if got := run(); got != "accepted" {
			t.Fatalf("run again: %s", got)
		}
		if v, _ := h.View(context.Background(), "s"); v.Left != 4 || v.Accepted != 1 {
			t.Fatalf("%d left, %d accepted; want 4 and 1", v.Left, v.Accepted)
		}
	})
}

func TestAdmitRejectsReusedKey(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		h.put(t, onSale("s", 5, 5))
		h.want(t, "s", "ann", "k", sale.Accepted)
		d, err := h.Admit(
			context.Background(), Request{SaleID: "s", Buyer: "ann", Key: "k", KeyTTL: time.Minute, Fingerprint: "other"},
		)
		if err != nil || d.Outcome != sale.KeyReused {
			t.Fatalf("outcome %s, %v; want key_reused", d.Outcome, err)
		}
	})
}

func TestAdmitUsesEmptySlots(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		h.put(t, onSale("s", 10, 3))
		ids := []sale.OrderID{}
		for i := range 3 {
			ids = append(ids, h.want(t, "s", "ann", fmt.Sprint(i), sale.Accepted).OrderID)
		}
		h.want(t, "s", "ann", "more", sale.AlreadyBought)
		returned := ids[0].String() + ",," + ids[2].String() // the second order was returned
		c.HSet(context.Background(), shard.Buyers("s"), "ann", returned)
		h.want(t, "s", "ann", "again", sale.Accepted)
		m, err := keyspace.DecodeMessage(c.LIndex(context.Background(), shard.Ready(), 0).Val())
		if err != nil || m.Slot != 2 || m.Serial != 4 {
			t.Fatalf("message %+v, %v; want slot 2 and serial 4", m, err)
		}
		h.want(t, "s", "ann", "third", sale.AlreadyBought)
	})
}

// The append-only file must not grow. The test uses appendfsync always, with which Redis replies after the write to the
// file. With everysec, Redis may postpone that write for two seconds on a slow disk.
func TestRefusalsWriteNothing(t *testing.T) {
	r := testenv.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always")
	c := r.Client()
	h := newShop(c)
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
		t.Errorf("1000 refusals created %d keys", now-keys)
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
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
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
					d, err := a.Admit(
						context.Background(),
						Request{SaleID: "s", Buyer: buyer, Key: fmt.Sprint(k), KeyTTL: time.Minute, Fingerprint: "f"},
					)
					if err != nil {
						t.Error(err)
						return
					}
					if d.Outcome == sale.Accepted {
						mu.Lock()
						won[buyer]++
						if seen[d.OrderID] {
							t.Errorf("order id %s was allocated twice", d.OrderID)
						}
						seen[d.OrderID] = true
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		if len(won) != stock || len(seen) != stock {
			t.Fatalf("%d buyers with %d orders, want %d of each", len(won), len(seen), stock)
		}
		if n := c.LLen(context.Background(), shard.Ready()).Val(); n != stock {
			t.Fatalf("%d messages, want %d", n, stock)
		}
	})
}

// If the queue key has the wrong type, the script fails before it takes a unit.
func TestAdmitWritesNothingWhenTheQueueKeyHasTheWrongType(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		h.put(t, onSale("s", 5, 1))
		c.Set(ctx, shard.Ready(), "junk", 0)
		r := Request{SaleID: "s", Buyer: "ann", Key: "k", KeyTTL: time.Minute, Fingerprint: "f"}
		if _, err := h.Admit(ctx, r); err == nil {
			t.Error("Admit succeeded without a queue")
		}
		c.Del(ctx, shard.Ready())
		if v, err := h.View(ctx, "s"); err != nil || v.Left != 5 || v.Accepted != 0 {
			t.Errorf("sale after the error: %+v, %v", v, err)
		}
		if d, err := h.Admit(ctx, r); err != nil || d.Outcome != sale.Accepted || c.LLen(ctx, shard.Ready()).Val() != 1 {
			t.Errorf("repeated request: %+v, %v", d, err)
		}
	})
}

func TestReplyBeginsWithTheNameOfAnOutcome(t *testing.T) {
	values := map[sale.Outcome]string{
		sale.Replayed: " 7", sale.AlreadyBought: " 7", sale.SoldOut: " 1 2", sale.SalePaused: " 1 2", sale.SaleClosed: " 1 2",
		sale.NotOpen: " 1000 400 1 2",
	}
	for _, o := range sale.Outcomes {
		if d, err := parseDecision(string(o)+values[o], 7); err != nil || d.Outcome != o {
			t.Errorf("%s is read as %+v, %v", o, d, err)
		}
		if d, err := parseDecision(string(o), 7); (err == nil) != (values[o] == "") {
			t.Errorf("%s without values is read as %+v, %v", o, d, err)
		}
	}
	for _, line := range []string{"", "invalid", "Accepted", "accepted_ "} {
		if d, err := parseDecision(line, 7); err == nil {
			t.Errorf("%q is read as %+v", line, d)
		}
	}
}
