package admin

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// Settle processes dead orders page by page over all shards: each match once, and none in a dry run. The log has the
// actor and the reason.
func TestSettleManyDeadOrders(t *testing.T) {
	w := newWorld(t)
	w.noFault()
	sales := []string{}
	for i := 0; len(sales) < 2; i++ { // one in each of two shards
		id := fmt.Sprint("s", i)
		if len(sales) == 0 ||
			space.ShardOf(id) != space.ShardOf(sales[0]) {
			sales = append(sales, id)
			w.create(id, 10)
		}
	}
	var ids []sale.OrderID
	for _, buyer := range []string{"a", "b", "c", "d"} {
		for _, id := range sales {
			ids = append(ids, w.makeDead(id, buyer).ID)
		}
	}
	all := func(s Settlement, reason string) (found []Settled) {
		t.Helper()
		for s.Limit = 3; ; {
			page, err := w.dead.Settle(store.WithReason(w.ctx, reason), s)
			if err != nil || len(page.Orders) > s.Limit {
				t.Fatalf("%d of at most %d, %v", len(page.Orders), s.Limit, err)
			}
			found = append(found, page.Orders...)
			if s.After = page.Next; s.After == "" {
				return found
			}
		}
	}
	for name, row := range map[string]struct {
		filter queue.DeadQuery
		want   int
	}{
		"all": {queue.DeadQuery{}, 8}, "of a sale": {queue.DeadQuery{SaleID: sales[1]}, 4},
		"error": {queue.DeadQuery{ErrorContains: "CARD"}, 8}, "another error": {queue.DeadQuery{ErrorContains: "disk"}, 0},
		"died before": {
			queue.DeadQuery{DiedBefore: time.Now().Add(-time.Hour)}, 0,
		}, "died before now": {queue.DeadQuery{DiedBefore: time.Now().Add(time.Hour)}, 8},
		"died after": {queue.DeadQuery{DiedAfter: time.Now().Add(time.Hour)}, 0}, "died after an hour ago": {
			queue.DeadQuery{DiedAfter: time.Now().Add(-time.Hour)}, 8,
		},
	} {
		got := all(Settlement{Verb: CancelDead, DeadQuery: row.filter, DryRun: true}, "")
		if len(got) != row.want ||
			slices.ContainsFunc(got, func(s Settled) bool { return s.Status != sale.StatusDead || s.Err != nil }) {
			t.Errorf("%s: %d would be settled, want %d: %+v", name, len(got), row.want, got)
		}
	}
	w.wantTotals(sales[0], 6, 0)

	// another process is cancelling it
	if _, err := w.queues[space.ShardOf(sales[0])].BeginCancel(w.ctx, ids[0]); err != nil {
		t.Fatal(err)
	}
	retried := all(Settlement{Verb: RetryDead, DeadQuery: queue.DeadQuery{SaleID: sales[0]}}, "the disk is fixed")
	for i, s := range retried {
		if i == 0 && !errors.Is(s.Err, sale.ErrConflict) || i > 0 && (s.Err != nil || s.Status != sale.StatusQueued) {
			t.Errorf("retry %d: %+v", i, s)
		}
	}
	if len(retried) != 4 {
		t.Errorf("%d retried", len(retried))
	}
	cancelled := all(Settlement{Verb: CancelDead}, "stolen cards")
	if len(cancelled) != 5 { // including the one with a cancel in progress
		t.Errorf("%d cancelled: %+v", len(cancelled), cancelled)
	}
	if again := all(Settlement{Verb: CancelDead}, ""); len(again) != 0 {
		t.Errorf("cancelled again: %+v", again)
	}
	w.wantTotals(sales[0], 7, 0)
	w.wantTotals(sales[1], 10, 0)
	log, err := w.store.Log(w.ctx, store.LogQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]int{}
	for _, e := range log {
		if e.Actor == "ann" {
			for _, why := range []string{"the disk is fixed", "stolen cards"} {
				if strings.Contains(e.Detail, why) {
					said[e.Action]++
				}
			}
		}
	}
	if said["dead.retry"] != 3 || len(said) != 2 {
		t.Errorf("the log has %v", said)
	}
}

func TestSettleReportsAnUnavailableStore(t *testing.T) {
	w := newWorld(t)
	w.noFault()
	w.create("s", 5)
	w.makeDead("s", "ann")
	w.makeDead("s", "bob")
	*w.faults = faults{at: 2} // of the calls of the first order
	done, err := w.dead.Settle(w.ctx, Settlement{Verb: CancelDead})
	if !errors.Is(err, sale.ErrUnavailable) || len(done.Orders) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	w.noFault()
	if done, err = w.dead.Settle(w.ctx, Settlement{Verb: CancelDead}); err != nil || len(done.Orders) != 2 {
		t.Errorf("again: %+v, %v", done, err)
	}
	w.wantTotals("s", 5, 0)
}

// Redis lost its sequence: two orders have one id. The dead letter of the second one has another key.
func TestSettleDoesNotSettleAnotherOrderWithTheSameID(t *testing.T) {
	w := newWorld(t)
	w.create("s", 5)
	dead := w.makeDead("s", "bob")
	other := dead
	other.Buyer = "eve"
	q := w.queues[space.ShardOf("s")]
	if err := q.Push(w.ctx, other); err != nil {
		t.Fatal(err)
	}
	b, _, err := queuetest.Take(w.ctx, q, 1, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Ack(w.ctx, b.ID, queue.Failure{ID: dead.ID, Reason: "no row", Permanent: true}); err != nil {
		t.Fatal(err)
	}
	done, err := w.dead.Settle(w.ctx, Settlement{
		Verb: CancelDead, DeadQuery: queue.DeadQuery{ErrorContains: "no row"},
	})
	if err != nil || len(done.Orders) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if letter, err := w.dead.Find(w.ctx, dead.ID); err != nil || letter.Message.Buyer != "bob" {
		t.Errorf("%+v, %v", letter, err)
	}
	w.wantTotals("s", 4, 0)
}

// A retried order that dies again before the next page is not selected again: the first page returns the time that
// bounds the next ones.
func TestOrdersThatDieAgainAreNotSettledAgain(t *testing.T) {
	w := newWorld(t)
	w.create("drop", 10)
	first, second := w.makeDead("drop", "a"), w.makeDead("drop", "b")
	wanted := Settlement{Verb: RetryDead, DeadQuery: queue.DeadQuery{Limit: 1}}
	for _, want := range []sale.OrderID{first.ID, second.ID} {
		page, err := w.dead.Settle(w.ctx, wanted)
		if err != nil || len(page.Orders) != 1 || page.Orders[0].DeadLetter.Message.ID != want || page.Orders[0].Err != nil {
			t.Fatalf("settled %+v, %v; want order %s", page, err, want)
		}
		if at := page.DiedBefore; at != at.Truncate(time.Millisecond) { // the next request has milliseconds
			t.Errorf("died before %s, want milliseconds", at)
		}
		for time.Now().Before(page.DiedBefore) { // for less than a millisecond
			runtime.Gosched()
		}
		w.die("drop", page.Orders[0].DeadLetter.Message.Buyer, want)
		wanted.After, wanted.DiedBefore = page.Next, page.DiedBefore
	}
	page, err := w.dead.Settle(w.ctx, wanted)
	if err != nil || len(page.Orders) != 0 || page.Next != "" {
		t.Errorf("settled again: %+v, %v", page, err)
	}
}
