package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	redisscript "sluice/lua/redis"
	"sluice/test/testenv"
)

func TestUpdateChangesLeftByTheDifference(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		ctx := context.Background()
		s := onSale("s", 3, 1)
		if err := h.Update(ctx, s); !errors.Is(err, ErrNotLoaded) {
			t.Fatalf("update of an unknown sale: %v", err)
		}
		h.put(t, s)
		h.want(t, "s", "ann", "k", sale.Accepted)
		s.Stock, s.Version = 10, 2
		for range 2 { // the second call changes nothing
			if err := h.Update(ctx, s); err != nil {
				t.Fatal(err)
			}
		}
		v, err := h.View(ctx, "s")
		if err != nil || v.Left != 9 || v.Stock != 10 || v.State != sale.StateOpen {
			t.Fatalf("view %+v, %v", v, err)
		}
		list, err := h.List(ctx)
		if err != nil || len(list) != 1 || !reflect.DeepEqual(list[0], v) {
			t.Fatalf("list %+v, %v; want %+v", list, err, v)
		}
	})
}

func TestLoadCountsRowsAndQueuedOrdersOnce(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h := newShop(c)
		ctx := context.Background()
		h.put(t, onSale("s", 10, 2))
		both := h.want(t, "s", "ann", "1", sale.Accepted).OrderID // queued, and a row
		queued := h.want(t, "s", "ann", "2", sale.Accepted).OrderID
		c.Del(ctx, shard.Sale("s"), shard.Stock("s"), shard.Buyers("s"), shard.OrderNumbers())

		rows := []sale.Order{
			{ID: both, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1},
			{ID: both + 7, SaleID: "s", Buyer: "bob", Slot: 2, Serial: 9},
		}
		load := func() {
			if err := h.Load(
				ctx,
				onSale("s", 10, 2),
				func(_ context.Context, _ spread.Part, yield func(sale.Order) error) error {
					for _, o := range rows {
						if err := yield(o); err != nil {
							return err
						}
					}
					return nil
				},
			); err != nil {
				t.Fatal(err)
			}
		}
		load()
		load() // the second call changes nothing
		v, err := h.View(ctx, "s")
		if err != nil || v.Left != 7 || v.Accepted != 9 {
			t.Fatalf("%d left, %d accepted, %v; want 7 and 9", v.Left, v.Accepted, err)
		}
		h.want(t, "s", "ann", "3", sale.AlreadyBought)
		h.want(t, "s", "bob", "3", sale.Accepted) // slot 1 is empty
		if o, err := h.FindOrder(ctx, "ann", queued); err != nil || o.Slot != 2 || o.SaleID != "s" {
			t.Fatalf("FindOrder = %+v, %v", o, err)
		}
		if _, err := h.FindOrder(ctx, "bob", queued); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("FindOrder by another buyer: %v", err)
		}
		fresh := NewSequencer(c, keyspace.Space{}, time.Now)
		id, err := fresh.Next(ctx, shard)
		if away := id.Sequence() - both.Sequence(); err != nil || away < blockSize || -away < blockSize {
			t.Fatalf("after the counter was lost, sequence %d is leased (%v)", id.Sequence(), err)
		}
	})
}

func TestUnreachableRedisIsUnavailableInTime(t *testing.T) {
	r := testenv.StartRedis(t)
	redisconn.Quiet(slog.New(slog.DiscardHandler))
	c := testenv.OpenPatient(t, r.URL)
	h := newShop(c)
	h.put(t, onSale("s", 10, 1))
	h.want(t, "s", "ann", "k", sale.Accepted)
	pipe, err := redisconn.NewPipeline(c)
	if err != nil {
		t.Fatal(err)
	}
	a := newAdmitter(pipe, c)
	a.cfg.IDs = h.Admitter.cfg.IDs
	a.groups.timeout = time.Minute
	buy := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		begin := time.Now()
		_, err := a.Admit(ctx, Request{SaleID: "s", Buyer: "bob", Key: "k", KeyTTL: time.Minute, Fingerprint: "f"})
		if took := time.Since(begin); took > tooLong {
			t.Errorf("Admit took %s with a deadline of 300 ms", took)
		}
		return err
	}
	r.Pause()
	if err := buy(); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("with Redis paused: %v", err)
	}
	r.Resume()
	testenv.Eventually(t, time.Minute, "a decision after Redis resumes", func() bool { return buy() == nil })
	r.Kill()
	if err := buy(); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("with Redis killed: %v", err)
	}
	r.Start()
	h.put(t, onSale("s", 10, 1))
	testenv.Eventually(t, time.Minute, "a decision after Redis restarts", func() bool { return buy() == nil })
}

func TestSequencersAllocateUniqueIDs(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		var mu sync.Mutex
		seen := map[sale.OrderID]bool{}
		var wg sync.WaitGroup
		for range 4 {
			space := keyspace.Space{Shards: 3}
			s := NewSequencer(c, space, func() time.Time { return clock })
			for i := range 4 {
				wg.Go(func() {
					for range 2000 {
						id, err := s.Next(context.Background(), keyspace.Shard(i%3))
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						if seen[id] {
							t.Errorf("order id %s was allocated twice", id)
						}
						if got := space.ShardOfOrder(id); got != keyspace.Shard(i%3) {
							t.Errorf("order id %s of shard %d is of shard %d", id, i%3, got)
						}
						seen[id] = true
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
	})
}

// Redis loses its counter, or returns with an older one, repeatedly, while each backend holds a block. Within one
// second, no number is allocated twice.
func TestOrderIDsAreUniqueAfterTheCounterIsLost(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		ctx := t.Context()
		clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		now := func() time.Time { clock = clock.Add(time.Microsecond); return clock }
		seen := map[sale.OrderID]bool{}
		take := func(s Sequencer) {
			t.Helper()
			for range 3 {
				id, err := s.Next(ctx, shard)
				if err != nil || seen[id] {
					t.Fatalf("order id %s (sequence %d) was allocated twice, %v", id, id.Sequence(), err)
				}
				seen[id] = true
			}
		}
		var backends []Sequencer
		join := func() {
			backends = append(backends, NewSequencer(c, keyspace.Space{}, now)) // or a backend that has used up its block
			for _, b := range backends {
				take(b)
			}
		}
		key := shard.OrderNumbers()
		for generation := int64(1); generation <= 10; generation++ {
			join()
			older := c.Get(ctx, key).Val()
			join()
			flushAll(ctx, c) // no backend has detected it yet
			join()
			if generation%2 == 0 {
				c.Set(ctx, key, older, 0)
			}
			if generation%3 == 0 {
				flushAll(ctx, c)
			}
			if err := NewSequencer(c, keyspace.Space{}, nil).StartGeneration(ctx, shard, generation); err != nil {
				t.Fatal(err)
			}
			join()
		}
	})
}

// With the most shards, a block that a process keeps does not repeat ids: the process discards it in time, and a
// rebuild starts at other numbers.
func TestOldBlocksAreDiscarded(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		space := keyspace.Space{Shards: 64}
		now := func() time.Time { return clock }
		take := func(s Sequencer) uint32 {
			t.Helper()
			id, err := s.Next(t.Context(), 63)
			if err != nil || id.Sequence()%64 != 63 {
				t.Fatalf("sequence %d, %v", id.Sequence(), err)
			}
			return id.Sequence() / 64
		}
		first, other := NewSequencer(c, space, now), NewSequencer(c, space, now)
		a := take(first)
		if b := take(other); b/blockSize == a/blockSize {
			t.Fatalf("%d and %d are of one block", a, b)
		}
		clock = clock.Add(blockLife + time.Second)
		if b := take(first); b < a+2*blockSize-1 {
			t.Errorf("%d follows %d after %v: the block was not discarded", b, a, blockLife)
		}
		for generation := int64(1); generation < generations; generation++ {
			if err := first.StartGeneration(t.Context(), 63, generation); err != nil {
				t.Fatal(err)
			}
			if b := take(NewSequencer(c, space, now)); b/(1<<32/64/64) != uint32(generation) {
				t.Fatalf("generation %d begins at %d", generation, b)
			}
		}
	})
}

// The client repeats a call after a lost reply. If the repetition advanced the counter further, the counter would be
// beyond the numbers of later generations, and StartGeneration would not advance it. Redis could then allocate lost
// numbers again.
func TestRepeatedStartOfAGenerationAdvancesOnce(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		c.AddHook(testenv.Commands(testenv.Twice))
		for generation := int64(1); generation <= 2; generation++ {
			if err := NewSequencer(c, keyspace.Space{}, nil).StartGeneration(t.Context(), shard, generation); err != nil {
				t.Fatal(err)
			}
			want := uint64(generation)<<32 | uint64(generation)*(1<<32/generations)
			if have, err := c.Get(t.Context(), shard.OrderNumbers()).Uint64(); err != nil || have != want {
				t.Fatalf("generation %d: the counter is %d, %v; want %d", generation, have, err, want)
			}
		}
	})
}

func TestSequencerIgnoresAClockSetBack(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		clock := time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC)
		s := NewSequencer(c, keyspace.Space{}, func() time.Time { return clock })
		a, _ := s.Next(context.Background(), shard)
		clock = clock.Add(-time.Minute)
		b, _ := s.Next(context.Background(), shard)
		if b <= a {
			t.Fatalf("order id %s after %s", b, a)
		}
	})
}

// Random purchases, replays, restocks and switches have the results of a simple model.
func TestAdmissionAgreesWithModel(t *testing.T) {
	r := testenv.StartRedis(t)
	c := r.Client()
	ctx := context.Background()
	rapid.Check(t, func(rt *rapid.T) {
		flushAll(ctx, c)
		h := newShop(c)
		perBuyer := rapid.IntRange(1, 3).Draw(rt, "per buyer")
		def := onSale("s", int64(rapid.IntRange(3, 6).Draw(rt, "stock")), perBuyer)
		if err := h.Load(ctx, def, none); err != nil {
			rt.Fatal(err)
		}
		left := def.Stock
		held := map[string]int{}
		keys := map[string]sale.OrderID{}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0:
				add := int64(rapid.IntRange(1, 3).Draw(rt, "add"))
				def.Stock, def.Version = def.Stock+add, def.Version+1
				left += add
			case 1:
				def.Switch = rapid.SampledFrom([]sale.Switch{sale.On, sale.Paused}).Draw(rt, "switch")
				def.Version++
			default:
				buyer := fmt.Sprint("b", rapid.IntRange(1, 4).Draw(rt, "buyer"))
				key := fmt.Sprint("k", rapid.IntRange(1, 5).Draw(rt, "key"))
				d, err := h.Admit(ctx, Request{SaleID: "s", Buyer: buyer, Key: key, KeyTTL: time.Minute, Fingerprint: "f"})
				if err != nil {
					rt.Fatal(err)
				}
				was, replay := keys[buyer+key]
				want := sale.Accepted
				switch {
				case replay:
					want = sale.Replayed
				case held[buyer] >= perBuyer:
					want = sale.AlreadyBought
				case def.Switch == sale.Paused:
					want = sale.SalePaused
				case left == 0:
					want = sale.SoldOut
				default:
					left--
					held[buyer]++
					keys[buyer+key] = d.OrderID
				}
				if d.Outcome != want || replay && d.OrderID != was {
					rt.Fatalf("buyer %s, key %s: %s %s, want %s %s", buyer, key, d.Outcome, d.OrderID, want, was)
				}
				continue
			}
			if err := h.Update(ctx, def); err != nil {
				rt.Fatal(err)
			}
		}
		count, err := h.CountUnits(ctx, spread.Part{SaleID: "s"})
		if err != nil || count.Left != left || count.Stock != def.Stock || int64(len(count.Ready)) != def.Stock-left {
			rt.Fatalf("count %+v, %v; want %d of %d left", count, err, left, def.Stock)
		}
	})
}

// If a row has the slot of a queued order, the queued order gets another slot: it holds a unit, which is returned with
// its slot only.
func TestLoadAssignsASlotToEveryUnit(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		rival := keyspace.EncodeMessage(sale.Order{ID: 900, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 2})
		c.LPush(ctx, shard.Ready(), rival)
		err := h.Load(ctx, onSale("s", 5, 1), func(_ context.Context, _ spread.Part, yield func(sale.Order) error) error {
			return yield(sale.Order{ID: 800, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1})
		})
		if err != nil {
			t.Fatal(err)
		}
		if held := c.HGet(ctx, shard.Buyers("s"), "ann").Val(); held != "800,900" {
			t.Errorf("ann has slots %q, want the row 800 in slot 1, and 900 after it", held)
		}
		if v, _ := h.View(ctx, "s"); v.Left != 3 {
			t.Errorf("%d units left, want 3: both orders hold a unit", v.Left)
		}
	})
}

// Redis is emptied while Load stores the buyers: the sale remains unknown.
func TestLoadDetectsAnEmptiedRedis(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		addHook(c, testenv.Commands(emptyBeforeLoad{h, shard.Buyers("s")}.process))
		row := func(_ context.Context, _ spread.Part, yield func(sale.Order) error) error {
			return yield(sale.Order{ID: 800, SaleID: "s", Buyer: "ann", Slot: 1, Serial: 1})
		}
		if err := h.Load(ctx, onSale("s", 5, 1), row); !errors.Is(err, sale.ErrUnavailable) {
			t.Fatalf("loaded without all buyers: %v", err)
		} else if n := strings.Count(err.Error(), "load sale s"); n != 1 {
			t.Errorf("the operation is named %d times: %v", n, err)
		}
		h.want(t, "s", "ann", "k", sale.UnknownSale)
	})
}

// emptyBeforeLoad deletes the buyers before the script that stores the sale.
type emptyBeforeLoad struct {
	h   *shop
	key string
}

func (e emptyBeforeLoad) process(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	if args := cmd.Args(); len(args) > 1 && args[0] == "evalsha" && args[1] == redisscript.Load("load_sale").Hash() {
		if err := e.h.c.Del(ctx, e.key).Err(); err != nil {
			return err
		}
	}
	return next(ctx, cmd)
}

func TestViewHasTheWholeSale(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		at := time.Now().UTC().Truncate(time.Millisecond)
		def := sale.Sale{
			ID: "s", Title: "Zoë's shoe", Price: sale.Price{Amount: 999, Currency: "EUR"}, Stock: 5, PerBuyer: 2,
			OpensAt: at.Add(-time.Hour), ClosesAt: at.Add(time.Hour), Switch: sale.Paused, Version: 3,
		}
		h.put(t, def)
		want := View{Sale: def, State: sale.StatePaused, Left: 5}
		if got, err := h.View(ctx, "s"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("view %+v, %v; want %+v", got, err, want)
		}
		def.ClosesAt, def.Switch, def.Version = time.Time{}, sale.On, 4
		if err := h.Update(ctx, def); err != nil {
			t.Fatal(err)
		}
		h.want(t, "s", "ann", "k", sale.Accepted)
		want = View{Sale: def, State: sale.StateOpen, Left: 4, Accepted: 1}
		if got, err := h.Views(ctx, []string{"none", "s"}); err != nil || len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("views %+v, %v; want %+v", got, err, want)
		}
	})
}

// The transaction returns the first error only: here the missing units of sale a, before the wrong type of a key of b.
func TestViewsReportKeyOfTheWrongType(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		for _, key := range []string{shard.Sale("b"), shard.Stock("b")} {
			for _, id := range []string{"a", "b"} {
				c.Del(ctx, shard.Sale(id), shard.Stock(id))
				h.put(t, onSale(id, 5, 1))
			}
			c.Del(ctx, shard.Stock("a"), key)
			c.SAdd(ctx, key, "x")
			if views, err := h.Views(ctx, []string{"a", "b"}); !errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("%s is a set: views %+v, %v", key, views, err)
			}
			h.put(t, onSale("c", 5, 1))
			if views, err := h.Views(ctx, []string{"a", "b", "c"}); err != nil || len(views) != 1 || views[0].ID != "c" {
				t.Errorf("%s is a set: views %+v, %v; want that of c", key, views, err)
			}
		}
	})
}

// A malformed value of one sale hides none of the others in its shard.
func TestMalformedValueConcernsOneSale(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		for name, spoil := range map[string]func(){
			"left":    func() { c.Set(ctx, shard.Stock("b"), "x", 0) },
			"stock":   func() { c.HSet(ctx, shard.Sale("b"), "stock", "x") },
			"version": func() { c.HSet(ctx, shard.Sale("b"), "version", "x") },
			"segment": func() { c.HSet(ctx, shard.Sale("b"), "segment", "1/x") },
		} {
			for _, id := range []string{"a", "b", "c"} {
				c.Del(ctx, shard.Sale(id), shard.Stock(id))
				h.put(t, onSale(id, 5, 1))
			}
			spoil()
			if views, err := h.List(ctx); err != nil || len(views) != 2 {
				t.Errorf("%s: views %+v, %v; want those of a and c", name, views, err)
			}
			if _, err := h.View(ctx, "b"); !errors.Is(err, sale.ErrUnavailable) || ConcernsOthers(err) {
				t.Errorf("%s: view of b: %v", name, err)
			}
			if _, err := h.CountShardUnits(ctx, shard, []string{"a", "b"}); err != nil && ConcernsOthers(err) {
				t.Errorf("%s: count: %v", name, err)
			}
		}
	})
}

// A pipeline returns the first error only: here the buyer without slots in sale a, before the wrong type of a key of b.
func TestReadsReportAFailureBehindAMissingKey(t *testing.T) {
	onEachRedis(t, func(t *testing.T, c redisconn.Client) {
		h, ctx := newShop(c), context.Background()
		for _, id := range []string{"a", "b"} {
			h.put(t, onSale(id, 5, 1))
		}
		c.Del(ctx, shard.Buyers("b"), shard.Sale("a"), shard.Sale("b"))
		c.SAdd(ctx, shard.Buyers("b"), "x")
		c.SAdd(ctx, shard.Sale("b"), "x")
		if o, err := h.findIn(ctx, shard, []string{"a", "b"}, "ann", 1); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("order %+v, %v", o, err)
		}
		if versions, err := h.Versions(ctx, wholeParts("a", "b")); !errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("versions %v, %v", versions, err)
		}
	})
}

// A Redis that is busy rejects the commands of a transaction, and then the transaction. The cause is not one sale.
func TestTransactionOfABusyRedisConcernsAllSales(t *testing.T) {
	r := testenv.StartRedis(t)
	c := r.Client()
	h := newShop(c)
	h.put(t, onSale("s", 1, 1))
	if err := c.ConfigSet(t.Context(), "lua-time-limit", "1").Err(); err != nil {
		t.Fatal(err)
	}
	patient := testenv.OpenPatient(t, r.URL)
	ended := make(chan error, 1)
	go func() { ended <- patient.Eval(context.Background(), "while true do end", nil).Err() }()
	testenv.Eventually(t, time.Minute, "the script runs", func() bool {
		return redis.HasErrorPrefix(c.Get(t.Context(), "k").Err(), "BUSY")
	})
	_, accepted := h.Accepted(t.Context(), "s")
	_, views := h.Views(t.Context(), []string{"s"})
	for _, err := range []error{accepted, views} {
		if !ConcernsOthers(err) {
			t.Errorf("the error is %v", err)
		}
	}
	if err := c.ScriptKill(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	<-ended
}
