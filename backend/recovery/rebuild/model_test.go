package rebuild_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"sluice/backend/admission"
	"sluice/backend/queue"
	"sluice/backend/queue/queuetest"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
)

// Random operations, after which Redis returns with older data or empty, repeatedly. After each rebuild with the
// journal, no accepted order is lost, no unit is sold twice, the limit per buyer holds, and the audit balances.
func TestRebuildAfterRandomOperations(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 40, 2)
			l := &operations{world: w, random: rand.New(rand.NewPCG(seed, 7)), accepted: map[sale.OrderID]string{}}
			copies := []map[string]string{{}}
			for range 5 {
				for range 10 + l.random.IntN(30) {
					l.step()
					if l.random.IntN(8) == 0 {
						copies = append(copies, w.copyOf())
					}
				}
				w.put(copies[l.random.IntN(len(copies))])
				w.run()
				l.batches = nil // lost by the rebuild
				l.check()
			}
			w.drain()
			l.check()
		})
	}
}

// operations performs random operations on one sale.
type operations struct {
	*world
	random   *rand.Rand
	n        int
	accepted map[sale.OrderID]string // without cancelled orders
	batches  []queue.Batch
}

func (l *operations) step() {
	q := l.shard("s")
	switch l.random.IntN(7) {
	case 0, 1, 2:
		l.n++
		buyer := fmt.Sprint("b", l.random.IntN(25))
		if d, err := l.try("s", buyer); err == nil && d.Outcome == sale.Accepted {
			l.accepted[d.OrderID] = buyer
		}
	case 3:
		if b, _, err := queuetest.Take(l.ctx, q, 1+l.random.IntN(5), ""); err == nil && len(b.Messages) > 0 {
			l.batches = append(l.batches, b)
		}
	case 4:
		if len(l.batches) > 0 {
			b := l.batches[0]
			l.batches = l.batches[1:]
			if err := l.store.Write(l.ctx, b.Messages); err != nil {
				l.t.Fatal(err)
			}
			if l.random.IntN(3) > 0 {
				_, _ = q.Ack(l.ctx, b.ID)
			}
		}
	case 5:
		if len(l.batches) > 0 {
			b := l.batches[0]
			l.batches = l.batches[1:]
			_, _ = q.Ack(l.ctx, b.ID, queue.Failure{ID: b.Messages[0].ID, Reason: "no", Permanent: true})
			for _, m := range b.Messages[1:] { // the other orders were written
				if err := l.store.Write(l.ctx, []sale.Order{m}); err != nil {
					l.t.Fatal(err)
				}
			}
		}
	case 6:
		crash := l.random.IntN(2) == 0
		delete(l.accepted, l.retryOrCancelDead(l.random, crash))
	}
}

// retryOrCancelDead retries or cancels a dead order of the sale, if there is one. It returns the order if its row is
// cancelled, else 0. If crash is set, the process crashes after that, before Redis is changed.
func (w *world) retryOrCancelDead(random *rand.Rand, crash bool) (cancelled sale.OrderID) {
	w.t.Helper()
	q := w.shard("s")
	letters, _, err := q.DeadLetters(w.ctx, queue.DeadQuery{SaleID: "s", Limit: 1})
	if err != nil || len(letters) == 0 {
		return 0
	}
	id := letters[0].Message.ID
	if random.IntN(2) == 0 {
		_ = q.RetryDead(w.ctx, id)
		return 0
	}
	letter, err := q.BeginCancel(w.ctx, id)
	if err != nil {
		w.t.Fatal(err)
	}
	wasRow, err := w.store.CancelDead(w.ctx, store.DeadOrder{Order: letter.Message})
	if err != nil {
		w.t.Fatal(err)
	}
	if !crash {
		if err := q.FinishCancel(w.ctx, id, !wasRow); err != nil {
			w.t.Fatal(err)
		}
	}
	if wasRow {
		return 0
	}
	return id
}

func (l *operations) check() {
	l.t.Helper()
	if len(l.paused) > 0 {
		l.t.Fatalf("paused sales: %v", l.paused)
	}
	r := l.audit("s")
	if r.Left < 0 {
		l.t.Fatalf("report %+v", r)
	}
	where := map[sale.OrderID]string{}
	stock := admission.NewStock(admission.StockConfig{Client: l.raw(), Space: space})
	count, err := stock.CountUnits(l.ctx, spread.Part{SaleID: "s"})
	if err != nil {
		l.t.Fatal(err)
	}
	count.InFlight(func(m sale.Order) { where[m.ID] = "queued" })
	letters := space.ShardOf("s").Dead().Letters()
	if err := admission.ScanDeadLetters(l.ctx, l.raw(), letters, func(m sale.Order, backed bool) {
		if !backed {
			where[m.ID] = "unbacked"
		}
	}); err != nil {
		l.t.Fatal(err)
	}
	var ids []sale.OrderID
	for id := range l.accepted {
		ids = append(ids, id)
	}
	rows, err := l.store.Statuses(l.ctx, ids)
	if err != nil {
		l.t.Fatal(err)
	}
	for id := range rows {
		where[id] = "row"
	}
	holds := map[string]int{}
	for id, buyer := range l.accepted {
		switch where[id] {
		case "":
			l.t.Fatalf("order %s of buyer %s is lost; %+v", id, buyer, r)
		case "unbacked":
			l.t.Fatalf(
				"order %s of buyer %s lost its unit, although all orders were restored before the next purchase", id, buyer,
			)
		default:
			holds[buyer]++
		}
	}
	for buyer, n := range holds {
		if n > 2 {
			l.t.Fatalf("buyer %s holds %d orders", buyer, n)
		}
	}
}
