package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/recovery/rebuild"
	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

func TestCancelReturnsTheUnitOnceAfterAnyCrash(t *testing.T) {
	w := newWorld(t)
	w.each(func(fault string) {
		f := *w.faults
		w.noFault()
		w.create(fault, 5)
		dead := w.makeDead(fault, "bob")
		w.wantTotals(fault, 4, 0)

		*w.faults = f
		_, err := w.dead.Cancel(w.ctx, dead.ID)
		if w.faults.what != "" != errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("the fault was hidden: %v", err)
		}
		w.noFault()
		// A worker that still holds the order writes it now. This has no effect on a cancelled order; otherwise the
		// order is sold.
		if err := w.store.Write(w.ctx, []sale.Order{dead}); err != nil {
			t.Fatal(err)
		}
		o, err := w.store.Order(w.ctx, dead.ID)
		if err != nil {
			t.Fatal(err)
		}
		sold := int64(0)
		if o.Status == sale.StatusCreated {
			sold = 1
		}
		for range 3 {
			got, err := w.dead.Cancel(w.ctx, dead.ID)
			if err != nil || got.Order.ID != dead.ID || got.Order.SaleID != fault || got.Order.Status != o.Status ||
				sold == 1 && got.UnitReturned {
				t.Errorf("again: %+v, %v; the row is %s", got, err, o.Status)
			}
		}
		w.wantNoDeadLetter(dead.ID)
		w.wantTotals(fault, 5-sold, sold)
		want := sale.Accepted
		if sold == 1 {
			want = sale.AlreadyBought
		}
		if d := w.buy(fault, "bob"); d.Outcome != want {
			t.Errorf("the buyer got %s, want %s", d.Outcome, want)
		}
		w.drain()
	})
}

// The dead orders of all segments of a sale are listed. They can be cancelled while a rebuild holds another segment.
func TestDeadOrdersOfASaleWithSegments(t *testing.T) {
	w := newWorld(t)
	wanted := storetest.Sale("s", 6)
	wanted.Spread = shards
	if _, err := w.Create(w.ctx, wanted); err != nil {
		t.Fatal(err)
	}
	w.create("other", 1)
	w.makeDead("other", "ann")
	var dead [shards]sale.Order
	for segment := range dead {
		buyer := ""
		for i := 0; buyer == "" || spread.Home(buyer, shards) != segment; i++ {
			buyer = fmt.Sprint("buyer", i)
		}
		dead[segment] = w.makeDead("s", buyer)
	}
	letters := map[sale.OrderID]bool{}
	for q := (queue.DeadQuery{SaleID: "s", Limit: 1}); ; {
		page, err := w.dead.List(w.ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range page.Letters {
			letters[l.Message.ID] = true
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	if len(letters) != shards || !letters[dead[0].ID] || !letters[dead[1].ID] {
		t.Errorf("dead letters of orders %v, want %v", letters, dead)
	}

	held := w.stock.ShardOf(spread.Part{SaleID: "s", Spread: shards}).Sale("s")
	version := w.redis.Client().HGet(w.ctx, held, "version").Val()
	w.redis.Client().HDel(w.ctx, held, "version")
	if got, err := w.dead.Cancel(w.ctx, dead[1].ID); err != nil || !got.UnitReturned {
		t.Errorf("with another segment held: %+v, %v", got, err)
	}
	if _, err := w.dead.Cancel(w.ctx, dead[0].ID); err == nil {
		t.Error("an order of the held segment was cancelled")
	}
	w.redis.Client().HSet(w.ctx, held, "version", version)
	if got, err := w.dead.Cancel(w.ctx, dead[0].ID); err != nil || !got.UnitReturned {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
	w.wantTotals("s", 6, 0)
}

// fence is the guard of a shard after its first rebuild.
type fence struct{ rebuild.Guard }

func (fence) Deployment() int64 { return 0 }

// A dead order without a unit is retried while another segment has one: the unit moves to the segment of its buyer.
// When no segment has one, the retry is refused.
func TestRetriedOrderGetsAUnitOfAnotherSegment(t *testing.T) {
	w := newWorld(t)
	wanted := storetest.Sale("s", 3)
	wanted.Spread = shards
	if _, err := w.Create(w.ctx, wanted); err != nil {
		t.Fatal(err)
	}
	home := spread.HomePart("s", "bob", shards)
	shard := w.stock.ShardOf(home)
	w.redis.Client().HSet(w.ctx, shard.Guard(), "fence", 1)
	restorer := rebuild.NewRestorer(fence{}, w.redis.Client(), shard, w.store)
	lost := make([]sale.Order, 0, 4)
	for i := 0; len(lost) < cap(lost); i++ {
		if buyer := fmt.Sprint("buyer", i); spread.HomePart("s", buyer, shards) == home {
			lost = append(lost, sale.Order{ID: sale.NewOrderID(time.Now(), uint32(i)), SaleID: "s", Buyer: buyer})
		}
	}
	restored, err := restorer.RestoreAt(w.ctx, 1, lost)
	if err != nil || restored.Unbacked == 0 {
		t.Fatalf("%+v, %v: want orders without a unit", restored, err)
	}
	retried := 0
	for _, o := range lost {
		_, err := w.dead.Retry(w.ctx, o.ID)
		if err == nil {
			retried++
		} else if !errors.Is(err, sale.ErrNotFound) {
			wantRefused(t, err, fmt.Sprintf("no unit is left for order %s: restock the sale, then retry", o.ID))
		}
	}
	if left := 3 - restored.Requeued; retried != left || restored.Unbacked <= left {
		t.Errorf("%d of %d orders without a unit were retried, and %d units were left", retried, restored.Unbacked, left)
	}
	w.drain()
	w.wantTotals("s", 0, 3)
}

// wantRefused checks the reason that an error has for an admin.
func wantRefused(t *testing.T, err error, reason string) {
	t.Helper()
	if refused, ok := errors.AsType[*store.RefusedError](err); !ok || refused.Detail != reason {
		t.Errorf("%v, want %q", err, reason)
	}
}

func (w *world) drain() {
	w.t.Helper()
	for _, q := range w.queues {
		ack := ""
		for {
			b, _, err := queuetest.Take(w.ctx, q, 100, ack)
			if err != nil {
				w.t.Fatal(err)
			}
			if len(b.Messages) == 0 {
				break
			}
			if err := w.store.Write(w.ctx, b.Messages); err != nil {
				w.t.Fatal(err)
			}
			ack = b.ID
		}
	}
}

func TestCancelOfACancelledRowReturnsNoUnitBeforeRedisHasIt(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	id := w.buy("s", "bob").OrderID
	w.drain()
	o, _, err := w.store.CancelOrder(w.ctx, id) // the cancelling process crashes here
	if err != nil {
		t.Fatal(err)
	}
	for _, returned := range []bool{false, true} {
		if got, err := w.dead.Cancel(w.ctx, id); err != nil || got.UnitReturned != returned {
			t.Errorf("%+v, %v; want UnitReturned %t", got, err, returned)
		}
		if _, err := returnUnits(w.ctx, w.store, w.stock, NewCounters(nil), downShards{}, []sale.Order{o}); err != nil {
			t.Fatal(err)
		}
	}
}

// Redis lost the sale and kept the dead letter. Cancel loads the sale, which counts the unit of the dead order as
// taken, and then returns the unit.
func TestCancelLoadsASaleThatRedisLost(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	dead := w.makeDead("s", "bob")
	w.lose("s")
	if _, err := w.dead.Cancel(w.ctx, dead.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.RunOnce(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.wantTotals("s", 5, 0)
}

// A dead order is cancelled while another process loads the sale and has already counted the unit of the order as
// taken.
func TestCancelDuringAConcurrentLoad(t *testing.T) {
	w := newWorld(t)
	s := w.create("s", 5).Sale
	dead := w.makeDead("s", "bob")
	w.lose("s")
	rows := func(context.Context, spread.Part, func(sale.Order) error) error { // read after the queue was counted
		_, err := w.dead.Cancel(w.ctx, dead.ID)
		return err
	}
	if err := w.stock.Load(w.ctx, s, rows); err != nil {
		t.Fatal(err)
	}
	w.wantTotals("s", 5, 0)
}

func TestRetryRequeuesTheOrder(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	dead := w.makeDead("s", "bob")
	for range 2 { // the repetition comes before a worker has leased the order
		if is, err := w.dead.Retry(w.ctx, dead.ID); is != sale.StatusQueued || err != nil {
			t.Fatalf("the order is %s, %v", is, err)
		}
	}
	w.wantNoDeadLetter(dead.ID)
	w.drain()
	w.wantTotals("s", 4, 1)
	if is, err := w.dead.Retry(w.ctx, dead.ID); is != sale.StatusCreated || err != nil {
		t.Fatalf("after the repeated retry of a stored order it is %s, %v", is, err)
	}
	if _, err := w.dead.Retry(w.ctx, w.buy("s", "ben").OrderID); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("retried an order that was never dead: %v", err)
	}
	log, err := w.store.Log(w.ctx, store.LogQuery{Limit: 1})
	if err != nil || log[0].Actor != "ann" || log[0].Action != "dead.retry" || log[0].Target != dead.ID.String() ||
		log[0].Detail != "sale s: card stolen" {
		t.Fatalf("log %+v, %v", log, err)
	}
}

// repeating returns DeadLetters with a client that repeats each command, as after a lost reply.
func (w *world) repeating() *DeadLetters {
	client := testenv.NewClient(redisconn.Addr(w.redis.Client()))
	w.t.Cleanup(func() { _ = client.Close() })
	client.AddHook(testenv.Commands(testenv.Twice))
	var all []Shard
	for _, shard := range space.All() {
		all = append(all, queue.NewList(client, shard, queue.Config{}))
	}
	return NewDeadLetters(Config{Store: w.store, Stock: w.stock, Shards: all})
}

func TestDeadOrdersAreSettledDespiteLostReplies(t *testing.T) {
	w := newWorld(t)
	dead := w.repeating()
	w.create("s", 5)
	retried, cancelled := w.makeDead("s", "ann"), w.makeDead("s", "bob")
	if _, err := dead.Retry(w.ctx, retried.ID); err != nil {
		t.Errorf("retry: %v", err)
	}
	if done, err := dead.Cancel(w.ctx, cancelled.ID); err != nil || !done.UnitReturned {
		t.Errorf("cancel: %+v, %v", done, err)
	}
	q := w.queues[space.ShardOf("s")]
	if s, err := q.Stats(w.ctx); err != nil || s.Ready != 1 || s.Dead != 0 {
		t.Errorf("%+v, %v; want one order in the queue", s, err)
	}
	w.drain()
	w.wantTotals("s", 4, 1)

	w.redis.Client().LPush(w.ctx, keyspace.Shard(0).Ready(), "no message")
	w.drain()
	page, err := w.dead.List(w.ctx, queue.DeadQuery{})
	if err != nil || len(page.Letters) != 1 {
		t.Fatalf("%+v, %v", page, err)
	}
	for range 2 { // a client that has lost the response repeats the call
		if err := dead.Drop(w.ctx, page.Letters[0].Key); err != nil {
			t.Errorf("drop: %v", err)
		}
	}
	if log, err := w.store.Log(w.ctx, store.LogQuery{Target: page.Letters[0].Key}); err != nil || len(log) != 1 {
		t.Errorf("the action log has %+v, %v; want one entry", log, err)
	}
}

// The response to the cancellation of a dead letter is lost. Its order was a row: the repeated call returns the row.
func TestRepeatedCancelOfARow(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	dead := w.makeDead("s", "bob")
	if err := w.store.Write(w.ctx, []sale.Order{dead}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		done, err := w.dead.Cancel(w.ctx, dead.ID)
		if err != nil || done.Order.Status != sale.StatusCreated || done.Order.Buyer != "bob" || done.UnitReturned {
			t.Errorf("%+v, %v; want the row", done, err)
		}
	}
	w.wantNoDeadLetter(dead.ID)
	w.wantTotals("s", 4, 1)
	other := w.buy("s", "eve").OrderID
	w.drain()
	if done, err := w.dead.Cancel(w.ctx, other); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("a row without a dead letter: %+v, %v", done, err)
	}
}

// Redis has a dead letter of an archived sale again, and an archive file may have the order. A retry is rejected. The
// cancellation creates no row and does not load the sale.
func TestDeadOrderOfAnArchivedSale(t *testing.T) {
	w := newWorld(t)
	w.create("old", 5)
	dead := w.makeDead("old", "bob")
	w.archive("old")
	var rejected *store.RefusedError
	if _, err := w.dead.Retry(w.ctx, dead.ID); !errors.As(err, &rejected) ||
		!strings.Contains(rejected.Detail, "sluice dead cancel "+dead.ID.String()) {
		t.Errorf("a retry: %v", err)
	}
	if _, err := w.dead.Find(w.ctx, dead.ID); err != nil {
		t.Errorf("after the retry: %v", err)
	}
	if _, err := w.store.LastLog(w.ctx, dead.ID.String(), store.RetriedDead); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("the action log: %v", err)
	}
	for range 2 {
		if done, err := w.dead.Cancel(w.ctx, dead.ID); err != nil || done.Order.Status != Dropped ||
			done.UnitReturned {
			t.Errorf("%+v, %v; want a dropped order", done, err)
		}
	}
	w.wantNoDeadLetter(dead.ID)
	if rows, err := w.store.Statuses(w.ctx, []sale.OrderID{dead.ID}); err != nil || len(rows) > 0 {
		t.Errorf("rows %v, %v", rows, err)
	}
	if _, err := w.stock.View(w.ctx, "old"); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("Redis has the sale: %v", err)
	}
}

// An order was retried, became a row, and its sale is archived: a repeated retry names the files and requeues nothing.
func TestRepeatedRetryOfAnArchivedOrder(t *testing.T) {
	w := newWorld(t)
	w.create("old", 5)
	dead := w.makeDead("old", "bob")
	if status, err := w.dead.Retry(w.ctx, dead.ID); err != nil || status != sale.StatusQueued {
		t.Fatalf("%s, %v", status, err)
	}
	w.drain()
	w.archive("old")
	rows, err := w.store.OrderRows(w.ctx, store.OrderQuery{SaleID: "old"})
	if err != nil || len(rows) != 1 {
		t.Fatalf("%+v, %v", rows, err)
	}
	line, err := json.Marshal(rows[0])
	if err != nil {
		t.Fatal(err)
	}
	row := store.Archived{ID: int64(dead.ID), JSON: string(line)}
	if n, err := w.store.RemoveOrders(w.ctx, "old", []store.Archived{row}); n != 1 || err != nil {
		t.Fatalf("removed %d, %v", n, err)
	}
	status, err := w.dead.Retry(w.ctx, dead.ID)
	if rejected, ok := errors.AsType[*store.RefusedError](err); !ok ||
		!strings.Contains(rejected.Detail, "sluice sale show old") {
		t.Errorf("%s, %v; want the command that lists the files", status, err)
	}
}

// The retry of an order that was retried, failed again and was cancelled returns ErrNotFound.
func TestRetryAfterACancelIsNotFound(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	dead := w.makeDead("s", "bob")
	if _, err := w.dead.Retry(w.ctx, dead.ID); err != nil {
		t.Fatal(err)
	}
	q := w.queues[space.ShardOf("s")]
	b, _, err := queuetest.Take(w.ctx, q, 10, "")
	if err != nil || len(b.Messages) != 1 {
		t.Fatalf("%+v, %v", b, err)
	}
	if _, err := q.Ack(w.ctx, b.ID, queue.Failure{ID: dead.ID, Reason: "again", Permanent: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.dead.Cancel(w.ctx, dead.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.dead.Retry(w.ctx, dead.ID); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("retry of a cancelled order: %v", err)
	}
}

// A repeated retry returns the status of the row, also after an admin has cancelled the row.
func TestRepeatedRetryOfACancelledRow(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	dead := w.makeDead("s", "bob")
	if _, err := w.dead.Retry(w.ctx, dead.ID); err != nil {
		t.Fatal(err)
	}
	w.drain()
	if _, err := w.CancelOrder(w.ctx, dead.ID); err != nil {
		t.Fatal(err)
	}
	if status, err := w.dead.Retry(w.ctx, dead.ID); err != nil || status != sale.StatusCancelled {
		t.Errorf("%s, %v; want cancelled", status, err)
	}
}

func TestRetryIsRejectedAfterCancelBegan(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	dead := w.makeDead("s", "bob")
	shard, _, err := w.dead.find(w.ctx, dead.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.dead.shards[shard].BeginCancel(w.ctx, dead.ID); err != nil {
		t.Fatal(err)
	}
	_, err = w.dead.Retry(w.ctx, dead.ID)
	wantRefused(t, err, fmt.Sprintf("order %[1]s is being cancelled: to complete that, cancel it again "+
		"(sluice dead cancel %[1]s)", dead.ID))
	if log, err := w.store.Log(w.ctx, store.LogQuery{Limit: 1}); err != nil || log[0].Action == "dead.retry" {
		t.Fatalf("the refused retry is in the log: %+v, %v", log, err)
	}
	page, err := w.dead.List(w.ctx, queue.DeadQuery{})
	if err != nil || len(page.Letters) != 1 || !page.Letters[0].Cancelling {
		t.Fatalf("%+v, %v", page, err)
	}
	if _, err := w.dead.Cancel(w.ctx, dead.ID); err != nil {
		t.Fatal(err)
	}
	w.wantTotals("s", 5, 0)
}

// hookedShard is a shard that calls afterFind after each dead letter it has found by its id.
type hookedShard struct {
	Shard
	afterFind func(sale.OrderID)
}

func (s hookedShard) DeadLetter(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error) {
	letter, err := s.Shard.DeadLetter(ctx, id)
	if err == nil {
		s.afterFind(id)
	}
	return letter, err
}

func TestRetryThatLosesAgainstCancelIsNotFound(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	dead := w.makeDead("s", "bob")
	cancel := func(id sale.OrderID) {
		if _, err := w.dead.Cancel(w.ctx, id); err != nil {
			t.Errorf("cancel: %v", err)
		}
	}
	slow := NewDeadLetters(Config{Store: w.store, Stock: w.stock, Shards: []Shard{
		hookedShard{w.queues[0], cancel}, hookedShard{w.queues[1], cancel},
	}})
	for range 2 { // the second call finds no dead letter
		if _, err := slow.Retry(w.ctx, dead.ID); !errors.Is(err, sale.ErrNotFound) {
			t.Fatalf("retry of an order that was cancelled in the meantime: %v", err)
		}
	}
	w.wantTotals("s", 5, 0)
}

// hookedStock is a stock that calls beforeSlots before it reads slots.
type hookedStock struct {
	Stock
	beforeSlots func()
}

func (s hookedStock) HaveSlots(ctx context.Context, orders []sale.Order) ([]bool, error) {
	s.beforeSlots()
	return s.Stock.HaveSlots(ctx, orders)
}

func TestCancelThatLosesAgainstCancelReturnsItsResult(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	row, dropped := w.makeDead("s", "bob"), w.makeDead("s", "ben")
	other := dropped
	other.Buyer = "eve" // the row of another order has the id, so that the dead order cannot become a row
	if err := w.store.Write(w.ctx, []sale.Order{other}); err != nil {
		t.Fatal(err)
	}
	for _, dead := range []sale.Order{row, dropped} {
		var faster Cancelled
		slow := NewDeadLetters(Config{
			Store: w.store, Shards: []Shard{w.queues[0], w.queues[1]},
			Stock: hookedStock{w.stock, func() {
				var err error
				if faster, err = w.dead.Cancel(w.ctx, dead.ID); err != nil {
					t.Fatal(err)
				}
			}},
		})
		got, err := slow.Cancel(w.ctx, dead.ID)
		if err != nil || !got.UnitReturned || !faster.UnitReturned || got.Order.Status != faster.Order.Status {
			t.Errorf("%+v, %v; the faster call returned %+v", got, err, faster)
		}
		last, err := w.store.LastLog(w.ctx, dead.ID.String(), store.CancelledOrder, store.DroppedDead)
		if err != nil || last.Actor != "ann" || last.HeldNoUnit() {
			t.Errorf("log %+v, %v", last, err)
		}
	}
}

func TestOneOfConcurrentRetryAndCancelsSucceeds(t *testing.T) {
	w := newWorld(t)
	plain := NewDeadLetters(w.plain())
	w.create("s", 100)
	left, sold := int64(100), int64(0)
	for round := range 25 {
		dead := w.makeDead("s", fmt.Sprint("buyer ", round))
		var wg sync.WaitGroup
		var cancelled, retried bool
		for range 2 {
			wg.Go(func() {
				_, err := plain.Cancel(w.ctx, dead.ID)
				if err != nil && !errors.Is(err, sale.ErrNotFound) {
					t.Errorf("cancel: %v", err)
				}
			})
		}
		wg.Go(func() {
			_, err := plain.Retry(w.ctx, dead.ID)
			if err != nil && !errors.Is(err, sale.ErrNotFound) && !errors.Is(err, sale.ErrConflict) {
				t.Errorf("retry: %v", err)
			}
			retried = err == nil
		})
		wg.Wait()
		w.drain()
		o, err := w.store.Order(w.ctx, dead.ID)
		if err != nil {
			t.Fatal(err)
		}
		cancelled = o.Status == sale.StatusCancelled
		if cancelled == retried {
			t.Fatalf("retried=%v, and the order is %s", retried, o.Status)
		}
		if !cancelled {
			left--
			sold++
		}
		w.wantNoDeadLetter(dead.ID)
		w.wantTotals("s", left, sold)
	}
}

// A dead letter without a readable message belongs to an unknown order. A retry or cancellation logs and changes
// nothing.
func TestUnreadableDeadLetterIsNotSettled(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	dead := w.makeDead("s", "bob")
	letters := space.ShardOf("s").Dead().Letters()
	for _, text := range []string{
		"{broken", "[]", `{"state":"dead","message":"no message"}`, `{"state":"dead","message":"99 s 1 1 eve"}`,
	} {
		if err := w.redis.Client().HSet(w.ctx, letters, dead.ID.String(), text).Err(); err != nil {
			t.Fatal(err)
		}
		status, err := w.dead.Retry(w.ctx, dead.ID)
		if _, ok := errors.AsType[*store.RefusedError](err); !ok {
			t.Errorf("%s: retry = %q, %v", text, status, err)
		}
		done, err := w.dead.Cancel(w.ctx, dead.ID)
		if _, ok := errors.AsType[*store.RefusedError](err); !ok {
			t.Errorf("%s: cancel = %+v, %v", text, done, err)
		}
		if now := w.redis.Client().HGet(w.ctx, letters, dead.ID.String()).Val(); now != text {
			t.Errorf("%s became %s", text, now)
		}
	}
	if entry, err := w.store.LastLog(w.ctx, dead.ID.String(), store.RetriedDead); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("log entry %+v, %v", entry, err)
	}
}

func TestCancelOfUnknownOrder(t *testing.T) {
	w := newWorld(t)
	if _, err := w.dead.Cancel(w.ctx, 77); !errors.Is(err, sale.ErrNotFound) {
		t.Fatalf("%v", err)
	}
}

func TestDeadPagesOverAllShards(t *testing.T) {
	w := newWorld(t)
	var want []sale.OrderID
	perShard := map[keyspace.Shard]int{}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		w.create(id, 9)
		for _, buyer := range []string{"x", "y"} {
			want = append(want, w.makeDead(id, buyer).ID)
		}
		perShard[space.ShardOf(id)]++
	}
	if len(perShard) != shards {
		t.Fatalf("all sales are in one shard: %v", perShard)
	}
	slices.Sort(want)
	for _, limit := range []int{0, 1, 2, 3, 9, 10, 11} {
		var got []sale.OrderID
		q := queue.DeadQuery{Limit: limit}
		for pages := 0; ; pages++ {
			page, err := w.dead.List(w.ctx, q)
			if err != nil || limit > 0 && len(page.Letters) > limit || pages > 20 {
				t.Fatalf("limit %d: %d dead letters, %v", limit, len(page.Letters), err)
			}
			for _, letter := range page.Letters {
				got = append(got, letter.Message.ID)
			}
			if q.After = page.Next; q.After == "" {
				break
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("limit %d: %d dead letters, want %d", limit, len(got), len(want))
		}
	}
	page, err := w.dead.List(w.ctx, queue.DeadQuery{SaleID: "c"})
	if err != nil || len(page.Letters) != 2 || page.Next != "" || page.Letters[0].Message.SaleID != "c" ||
		page.Letters[0].Reason != "card stolen" {
		t.Fatalf("of one sale: %+v, %v", page, err)
	}
	for _, id := range []string{"a", "b", "c", "d", "e"} { // the cursor is from when Redis did not hold the sale and List searched all shards
		page, err := w.dead.List(w.ctx, queue.DeadQuery{SaleID: id, After: "0~"})
		if err != nil || len(page.Letters) != 2 || page.Next != "" {
			t.Errorf("of sale %s, after the cursor of another shard: %+v, %v", id, page, err)
		}
	}
	var invalid *sale.InvalidError
	for _, after := range []string{"x", "~", "9~", "-1~", "0~x", "1"} {
		if _, err := w.dead.List(w.ctx, queue.DeadQuery{After: after}); !errors.As(err, &invalid) {
			t.Errorf("cursor %q: %v", after, err)
		}
	}
}

func TestDropRemovesOnlyEntriesThatAreNotMessages(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	dead := w.makeDead("s", "bob")
	c := w.redis.Client()
	if err := c.LPush(w.ctx, keyspace.Shard(1).Ready(), "no message at all").Err(); err != nil {
		t.Fatal(err)
	}
	w.drain()
	page, err := w.dead.List(w.ctx, queue.DeadQuery{})
	i := slices.IndexFunc(page.Letters, func(d queue.DeadLetter) bool { return d.Raw != nil })
	if err != nil || len(page.Letters) != 2 || i < 0 || string(page.Letters[i].Raw) != "no message at all" {
		t.Fatalf("%+v, %v", page, err)
	}
	for _, key := range []string{dead.ID.String(), "raw:nothing"} {
		if err := w.dead.Drop(w.ctx, key); !errors.Is(err, sale.ErrNotFound) {
			t.Errorf("dropped %s: %v", key, err)
		}
	}
	if err := w.dead.Drop(w.ctx, page.Letters[i].Key); err != nil {
		t.Fatal(err)
	}
	if page, err = w.dead.List(w.ctx, queue.DeadQuery{}); err != nil || len(page.Letters) != 1 ||
		page.Letters[0].Message.ID != dead.ID {
		t.Fatalf("%+v, %v", page, err)
	}
}

// Redis is rebuilt after Cancel has read the dead letter and before it writes the row. The call fails, and a repeated
// call checks again whether the dead letter exists.
func TestCancelDuringARebuildIsRepeated(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	dead := w.makeDead("s", "bob")
	guard := space.ShardOf("s").Guard()
	redis := w.redis.Client()
	begin := func() (generation int64) {
		generation, err := w.store.NextFence(w.ctx, 0)
		if err == nil {
			err = w.store.BeginGeneration(w.ctx, int(space.ShardOf("s")), generation)
		}
		if err != nil {
			t.Fatal(err)
		}
		return generation
	}
	redis.HSet(w.ctx, guard, "generation", begin())
	later := begin()
	if _, err := w.dead.Cancel(w.ctx, dead.ID); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("cancelled by a dead letter from before the rebuild: %v", err)
	}
	if _, err := w.store.Order(w.ctx, dead.ID); !errors.Is(err, sale.ErrNotFound) {
		t.Errorf("it is a row: %v", err)
	}
	redis.HSet(w.ctx, guard, "generation", later)
	if _, err := w.dead.Cancel(w.ctx, dead.ID); err != nil {
		t.Error(err)
	}
	w.wantNoDeadLetter(dead.ID)
	w.wantTotals("s", 5, 0)
}
