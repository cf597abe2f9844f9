package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// nameIn returns the id of a sale that is in a shard.
func nameIn(shard int) string {
	for i := 0; ; i++ {
		if id := fmt.Sprint("s", i); int(space.ShardOf(id)) == shard {
			return id
		}
	}
}

// saleIn creates a sale in a shard.
func (w *world) saleIn(shard int, stock int64) string { return w.create(nameIn(shard), stock).ID }

// A shard that is down hides its own dead letters only, and the list names it.
func TestDeadLettersAreListedWhileAShardIsDown(t *testing.T) {
	for down := range shards {
		w, servers := newSplitWorld(t)
		up := 1 - down
		var sales [shards]string
		var dead [shards][]sale.OrderID
		for shard := range sales {
			sales[shard] = w.saleIn(shard, 5)
			for _, buyer := range []string{"ann", "bob", "cid"} {
				dead[shard] = append(dead[shard], w.makeDead(sales[shard], buyer).ID)
			}
		}
		list := func(q queue.DeadQuery) (ids []sale.OrderID, unavailable []int) {
			t.Helper()
			for {
				page, err := w.dead.List(w.ctx, q)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range page.Letters {
					ids = append(ids, l.Message.ID)
				}
				unavailable = append(unavailable, page.Unavailable...)
				if q.After = page.Next; q.After == "" {
					return ids, unavailable
				}
			}
		}
		first, err := w.dead.List(w.ctx, queue.DeadQuery{Limit: 2}) // it ends within shard 0
		if err != nil {
			t.Fatal(err)
		}
		servers[down].Kill()
		rest := dead[0][2:]
		if down == 0 {
			rest = dead[1]
		}
		for _, c := range []struct {
			query       queue.DeadQuery
			want        []sale.OrderID
			unavailable []int
		}{
			{queue.DeadQuery{Limit: 1}, dead[up], []int{down}},
			{queue.DeadQuery{Limit: 3}, dead[up], []int{down}},
			{queue.DeadQuery{}, dead[up], []int{down}},
			{queue.DeadQuery{Limit: 2, After: first.Next}, rest, []int{down}},
			{queue.DeadQuery{SaleID: sales[up]}, dead[up], nil},
		} {
			ids, unavailable := list(c.query)
			if !slices.Equal(ids, c.want) || !slices.Equal(unavailable, c.unavailable) {
				t.Errorf("shard %d is down: %+v has %v without shards %v; want %v", down, c.query, ids, unavailable, c.want)
			}
		}
		wantUnavailable(t, errOf(w.dead.List(w.ctx, queue.DeadQuery{SaleID: sales[down]})), down)
		servers[up].Kill()
		wantUnavailable(t, errOf(w.dead.List(w.ctx, queue.DeadQuery{})), 0, 1)
	}
}

// A shard whose dead letters cannot be read for a reason that lasts is named, and no page omits them.
func TestListNamesTheShardOfABrokenKey(t *testing.T) {
	w, servers := newSplitWorld(t)
	w.makeDead(w.saleIn(0, 5), "ann")
	servers[1].Client().Set(w.ctx, keyspace.Shard(1).Dead().Times(), "text", 0)
	page, err := w.dead.List(w.ctx, queue.DeadQuery{})
	if err == nil || !strings.Contains(err.Error(), "shard 1: ") || errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("%+v, %v; want an error that names shard 1", page, err)
	}
}

// The dead letters of a sale are read from the shards of its segments only.
func TestDeadLettersOfASaleAreReadFromItsShards(t *testing.T) {
	w := newWorld(t)
	of := keyspace.Space{Shards: 4}
	first := int(of.ShardOf("s"))
	w.stock.LearnSpread(sale.Sale{ID: "s", Spread: 2})
	all := make([]Shard, of.Shards) // a nil one must not be read
	all[first], all[(first+1)%of.Shards] = w.queues[0], w.queues[1]
	dead := NewDeadLetters(Config{Stock: w.stock, Shards: all})
	if page, err := dead.List(w.ctx, queue.DeadQuery{SaleID: "s"}); err != nil || page.Next != "" {
		t.Errorf("%+v, %v", page, err)
	}
}

// One dead order is shown, retried and cancelled while the shard of another one is down.
func TestDeadOrderIsSettledWhileAnotherShardIsDown(t *testing.T) {
	for down := range shards {
		w, servers := newSplitWorld(t)
		up := w.saleIn(1-down, 5)
		shown, retried, cancelled := w.makeDead(up, "ann").ID, w.makeDead(up, "bob").ID, w.makeDead(up, "cid").ID
		unknown := w.makeDead(w.saleIn(down, 5), "ann").ID
		forged := w.makeDead(up, "eve")
		forged.ID = unknown + shards // of the shard that is down
		if err := w.queues[1-down].Push(w.ctx, forged); err != nil {
			t.Fatal(err)
		}
		w.fail(1-down, forged.ID)
		never := w.buy(up, "dan").OrderID
		servers[down].Kill()
		if letter, err := w.dead.Find(w.ctx, shown); err != nil || letter.Message.ID != shown {
			t.Errorf("%+v, %v", letter, err)
		}
		if status, err := w.dead.Retry(w.ctx, retried); err != nil || status != sale.StatusQueued {
			t.Errorf("retry: %s, %v", status, err)
		}
		if done, err := w.dead.Cancel(w.ctx, cancelled); err != nil || !done.UnitReturned {
			t.Errorf("cancel: %+v, %v", done, err)
		}
		if letter, err := w.dead.Find(w.ctx, forged.ID); err != nil || letter.Message.ID != forged.ID {
			t.Errorf("an order of the shard that is down in the queue of another: %+v, %v", letter, err)
		}
		for what, do := range map[string]func(sale.OrderID) error{
			"show":   func(id sale.OrderID) error { return errOf(w.dead.Find(w.ctx, id)) },
			"retry":  func(id sale.OrderID) error { return errOf(w.dead.Retry(w.ctx, id)) },
			"cancel": func(id sale.OrderID) error { return errOf(w.dead.Cancel(w.ctx, id)) },
		} {
			if err := do(never); !errors.Is(err, sale.ErrNotFound) || errors.Is(err, sale.ErrUnavailable) {
				t.Errorf("%s of an order that is not dead: %v", what, err)
			}
			wantUnavailable(t, do(unknown), down)
		}
	}
}

// fail makes an order in the queue of a shard a dead letter.
func (w *world) fail(shard int, id sale.OrderID) {
	w.t.Helper()
	b, _, err := queuetest.Take(w.ctx, w.queues[shard], 10, "")
	if err == nil {
		_, err = w.queues[shard].Ack(w.ctx, b.ID, queue.Failure{ID: id, Reason: "no", Permanent: true})
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// An entry that is not a message is dropped while another shard is down. One that no available shard has may be in that
// shard, also if an equal one was dropped before.
func TestRawEntryIsDroppedWhileAShardIsDown(t *testing.T) {
	w, servers := newSplitWorld(t)
	for shard, server := range servers {
		if err := server.Client().LPush(w.ctx, keyspace.Shard(shard).Ready(), "text").Err(); err != nil {
			t.Fatal(err)
		}
	}
	w.drain()
	page, err := w.dead.List(w.ctx, queue.DeadQuery{})
	if err != nil || len(page.Letters) != shards {
		t.Fatalf("%+v, %v", page, err)
	}
	key := page.Letters[0].Key
	servers[0].Kill()
	if err := w.dead.Drop(w.ctx, key); err != nil {
		t.Error(err)
	}
	wantUnavailable(t, w.dead.Drop(w.ctx, key), 0)
}

// The dead orders of a shard that is down are not settled, and the result names the shard.
func TestDeadOrdersAreSettledWhileAShardIsDown(t *testing.T) {
	for down := range shards {
		w, servers := newSplitWorld(t)
		var dead [shards]sale.OrderID
		for shard := range dead {
			dead[shard] = w.makeDead(w.saleIn(shard, 5), "ann").ID
		}
		servers[down].Kill()
		page, err := w.dead.Settle(w.ctx, Settlement{Verb: CancelDead})
		if err != nil || page.Next != "" || !slices.Equal(page.Unavailable, []int{down}) || len(page.Orders) != 1 ||
			page.Orders[0].DeadLetter.Message.ID != dead[1-down] || !page.Orders[0].UnitReturned {
			t.Errorf("shard %d is down: %+v, %v", down, page, err)
		}
	}
}

func errOf[T any](_ T, err error) error { return err }

// wantUnavailable checks that err names these shards.
func wantUnavailable(t *testing.T, err error, shards ...int) {
	t.Helper()
	e, ok := errors.AsType[*UnavailableError](err)
	if !ok || !slices.Equal(e.Shards, shards) || !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("%v, want an error that shards %v are unavailable", err, shards)
	}
	if ok && !strings.Contains(err.Error(), fmt.Sprint(shards[len(shards)-1])) {
		t.Errorf("the message %q does not name shard %d", err, shards[len(shards)-1])
	}
}

// A dead order that needs a unit of a segment that is down does not stop those after it.
func TestDeadOrderWithoutAUnitStopsNoOthers(t *testing.T) {
	w, servers := newSplitWorld(t)
	wanted := storetest.Sale(nameIn(0), 6)
	wanted.Spread = shards
	if _, err := w.Create(w.ctx, wanted); err != nil {
		t.Fatal(err)
	}
	var dead []sale.OrderID // in shard 0
	for i := 0; len(dead) < 2; i++ {
		if buyer := fmt.Sprint("b", i); spread.Home(buyer, shards) == 0 {
			dead = append(dead, w.makeDead(wanted.ID, buyer).ID)
		}
	}
	c, shard := servers[0].Client(), keyspace.Shard(0)
	letter := c.HGet(w.ctx, shard.Dead().Letters(), dead[0].String()).Val()
	letter = strings.Replace(letter, "{", `{"unit":"none",`, 1)
	if err := errors.Join(c.HSet(w.ctx, shard.Dead().Letters(), dead[0].String(), letter).Err(),
		c.Set(w.ctx, shard.Stock(wanted.ID), 0, 0).Err()); err != nil {
		t.Fatal(err)
	}
	servers[1].Kill()
	page, err := w.dead.Settle(w.ctx, Settlement{Verb: RetryDead, DeadQuery: queue.DeadQuery{SaleID: wanted.ID}})
	if err != nil || len(page.Orders) != 2 {
		t.Fatalf("%+v, %v", page, err)
	}
	if one, other := page.Orders[0], page.Orders[1]; one.DeadLetter.Message.ID != dead[0] ||
		!errors.Is(one.Err, sale.ErrUnavailable) || other.Err != nil || other.Status != sale.StatusQueued {
		t.Errorf("%+v, then %+v", one, other)
	}
}

// Many units that cannot be returned, because their shard is down or Redis does not hold their sale, do not delay
// those of other sales.
func TestUnitsThatCannotBeReturnedDelayNoOthers(t *testing.T) {
	buyers := make([]string, returnBatch+1)
	for i := range buyers {
		buyers[i] = fmt.Sprint("b", i)
	}
	for what, lose := range map[string]func(w *world, saleID string, server *testenv.Redis){
		"a shard that is down": func(_ *world, _ string, server *testenv.Redis) { server.Kill() },
		"a sale that is lost": func(_ *world, saleID string, server *testenv.Redis) {
			server.Client().Del(context.Background(), space.ShardOf(saleID).Sale(saleID))
		},
	} {
		t.Run(what, func(t *testing.T) {
			w, servers := newSplitWorld(t)
			var orders []sale.Order
			for shard := range shards {
				orders = append(orders, w.sellHeld(nameIn(shard), 1000, buyers...)...)
			}
			for _, o := range orders { // the process crashes before it returns them
				if _, _, err := w.store.CancelOrder(w.ctx, o.ID); err != nil {
					t.Fatal(err)
				}
			}
			slices.SortFunc(orders, func(a, b sale.Order) int { return cmp.Compare(a.ID, b.ID) })
			lost := int(space.ShardOf(orders[0].SaleID)) // in the first batch
			lose(w, nameIn(lost), servers[lost])
			r := w.returner()
			if err := r.RunOnce(w.ctx); err == nil {
				t.Error("the failure was hidden")
			}
			if left := w.view(nameIn(1 - lost)).Left; left != 1000 {
				t.Errorf("%d units of the other sale are left, want 1000", left)
			}
			if n := testutil.ToFloat64(r.counters.returning); n != float64(len(buyers)) {
				t.Errorf("the gauge reports %v units to return, want %d", n, len(buyers))
			}
		})
	}
}

// A sale with a key of the wrong type does not stop the others of its shard: their units are returned, and Redis gets
// their changes.
func TestBrokenSaleStopsNoOthers(t *testing.T) {
	for name, key := range map[string]func(keyspace.Shard, string) string{
		"sale": keyspace.Shard.Sale, "stock": keyspace.Shard.Stock, "buyers": keyspace.Shard.Buyers,
		"returns": keyspace.Shard.Returns,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var ids []string // in one shard: the broken sale, one that is changed, and one that Redis loses
			for i := 0; len(ids) < 3; i++ {
				if id := fmt.Sprint("sale-", i); space.ShardOf(id) == 0 {
					ids = append(ids, id)
				}
			}
			rows := slices.Concat(w.sellHeld(ids[0], 5, "ann"), w.sellHeld(ids[1], 5, "ann"))
			w.create(ids[2], 5)
			w.elapse(rows...)
			for _, id := range ids[:2] {
				if _, err := w.store.SetSwitch(w.ctx, id, sale.Paused); err != nil {
					t.Fatal(err)
				}
			}
			w.lose(ids[2])
			broken := key(space.ShardOf(ids[0]), ids[0])
			w.redis.Client().Del(w.ctx, broken)
			w.redis.Client().SAdd(w.ctx, broken, "a set")
			if err := w.returner().RunOnce(w.ctx); err == nil {
				t.Error("the unit of the broken sale was returned")
			}
			if v := w.view(ids[1]); v.Left != 5 {
				t.Errorf("%d units of the other sale are left, want 5", v.Left)
			}
			_ = w.RunOnce(w.ctx)
			if v := w.view(ids[1]); v.State != sale.StatePaused {
				t.Errorf("the other sale is %s, want paused", v.State)
			}
			if _, err := w.stock.View(w.ctx, ids[2]); err != nil {
				t.Errorf("the lost sale: %v", err)
			}
		})
	}
}

// pendingStock counts the reads of unconfirmed returns by shard.
type pendingStock struct {
	Stock
	reads [shards]atomic.Int64
}

func (s *pendingStock) PendingReturns(ctx context.Context, of spread.Part) ([]sale.OrderID, error) {
	s.reads[s.ShardOf(of)].Add(1)
	return s.Stock.PendingReturns(ctx, of)
}

// A shard that is down delays the confirmation of returns once, and not for each sale that has a segment in it.
func TestReturnsAreConfirmedWhileAShardIsDown(t *testing.T) {
	w, servers := newSplitWorld(t)
	const sales = 3
	for i := range sales {
		wanted := storetest.Sale(fmt.Sprint("s", i), 6)
		wanted.Spread = shards
		if _, err := w.Create(w.ctx, wanted); err != nil {
			t.Fatal(err)
		}
	}
	servers[0].Kill()
	cfg := w.plain()
	stock := &pendingStock{Stock: cfg.Stock}
	cfg.Stock = stock
	if err := NewHoldExpirer(cfg).RunOnce(w.ctx); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("%v, want %v", err, sale.ErrUnavailable)
	}
	if down, up := stock.reads[0].Load(), stock.reads[1].Load(); down != 1 || up != sales {
		t.Errorf("%d reads of the shard that is down, %d of the other; want 1 and %d", down, up, sales)
	}
}

// Old rehearsals are removed while a shard that does not hold them is down.
func TestOldRehearsalsAreRemovedWhileAShardIsDown(t *testing.T) {
	w, servers := newSplitWorld(t)
	w.saleIn(1, 5)
	old := storetest.Sale(sale.RehearsalID("shoe", "x"), 5)
	for i := 0; space.ShardOf(old.ID) != 0; i++ {
		old.ID = sale.RehearsalID("shoe", fmt.Sprint(i))
	}
	old.OpensAt, old.ClosesAt = time.Now().Add(-time.Hour), time.Now().Add(-rehearsalRetention)
	if _, err := w.store.CreateSale(w.ctx, old); err != nil {
		t.Fatal(err)
	}
	servers[1].Kill()
	testenv.Run(t, func(ctx context.Context) error { return w.Run(ctx, time.Millisecond) })
	testenv.Eventually(t, time.Minute, "the rehearsal is removed", func() bool {
		_, _, err := w.store.Sale(w.ctx, old.ID)
		return errors.Is(err, sale.ErrNotFound)
	})
}

// An old rehearsal in a shard that is down is not tried: it would delay the loop by the timeout of the shard.
func TestOldRehearsalsInAShardThatIsDownWait(t *testing.T) {
	w, servers := newSplitWorld(t)
	old := storetest.Sale(sale.RehearsalID("shoe", "x"), 5)
	old.Spread = shards
	old.OpensAt, old.ClosesAt = time.Now().Add(-time.Hour), time.Now().Add(-rehearsalRetention)
	old, err := w.store.CreateSale(w.ctx, old)
	if err != nil {
		t.Fatal(err)
	}
	servers[1].Kill()
	w.sweepRehearsals(w.ctx)
	if def, _, err := w.store.Sale(w.ctx, old.ID); err != nil || def.Version != old.Version {
		t.Errorf("version %d, %v; want %d", def.Version, err, old.Version)
	}
}

// While a shard does not respond, Redis gets the changes and the units of sales in another one.
func TestSuspendedShardDelaysNoOther(t *testing.T) {
	w, servers := newSplitWorld(t, redisconn.Timeouts(time.Hour))
	var orders []sale.Order
	for shard := range shards {
		orders = append(orders, w.sellHeld(nameIn(shard), 5, "ann")...)
		if _, err := w.store.SetSwitch(w.ctx, nameIn(shard), sale.Paused); err != nil {
			t.Fatal(err)
		}
	}
	w.elapse(orders...)
	servers[0].Pause()
	var running sync.WaitGroup
	running.Go(func() { _ = w.RunOnce(w.ctx) })
	expirer := NewHoldExpirer(w.plain())
	running.Go(func() { _ = expirer.RunOnce(w.ctx) })
	defer running.Wait()
	defer servers[0].Resume()
	testenv.Eventually(t, time.Minute, "the change and the unit of the other sale", func() bool {
		v, err := w.stock.View(w.ctx, nameIn(1))
		return err == nil && v.State == sale.StatePaused && v.Left == 5
	})
}
