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
)

// Random purchases without a dedup key, retries and cancellations of rows and of dead orders, and rebuilds of an intact
// Redis, which correct nothing: each repeated request gets its order.
func TestRequestsSurviveRebuildsOfAnIntactRedis(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			w := newWorld(t)
			w.create("s", 40, 3)
			l := &requests{world: w, random: rand.New(rand.NewPCG(seed, 11)), got: map[[2]string]sale.OrderID{}}
			for range 3 {
				for range 40 {
					l.step()
				}
				w.put(w.copyOf())
				w.check()
				w.run()
				s := w.rebuild.Status().Sales[0]
				if s.Corrected != 0 || s.Requeued != 0 || s.Unbacked != 0 || !s.Balanced {
					t.Fatalf("the rebuild changed an intact Redis: %+v", s)
				}
				l.repeat()
			}
		})
	}
}

// requests performs random operations on one sale, with requests that are stored with their orders.
type requests struct {
	*world
	random *rand.Rand
	n      int
	got    map[[2]string]sale.OrderID // by buyer and key
}

func (l *requests) buy(buyer, key string) admission.Decision {
	l.t.Helper()
	d, err := l.admit.Admit(l.ctx, admission.Request{SaleID: "s", Buyer: buyer, Key: key})
	if err != nil {
		l.t.Fatal(err)
	}
	return d
}

func (l *requests) repeat() {
	l.t.Helper()
	for r, want := range l.got {
		if d := l.buy(r[0], r[1]); d.Outcome != sale.Replayed || d.OrderID != want {
			l.t.Fatalf("request %s of buyer %s: %v %s, want order %s", r[1], r[0], d.Outcome, d.OrderID, want)
		}
	}
}

func (l *requests) step() {
	l.t.Helper()
	q := l.shard("s")
	switch l.random.IntN(6) {
	case 0, 1, 2:
		l.n++
		buyer, key := fmt.Sprint("b", l.random.IntN(8)), fmt.Sprint("k", l.n)
		if d := l.buy(buyer, key); d.Outcome == sale.Accepted {
			l.got[[2]string{buyer, key}] = d.OrderID
		}
	case 3: // written, and some are cancelled
		b, _, err := queuetest.Take(l.ctx, q, 1+l.random.IntN(3), "")
		if err != nil || len(b.Messages) == 0 {
			return
		}
		if err := l.store.Write(l.ctx, b.Messages); err != nil {
			l.t.Fatal(err)
		}
		if _, err := q.Ack(l.ctx, b.ID); err != nil {
			l.t.Fatal(err)
		}
		for _, m := range b.Messages {
			if l.random.IntN(3) > 0 {
				continue
			}
			if _, _, err := l.store.CancelOrder(l.ctx, m.ID); err != nil {
				l.t.Fatal(err)
			}
			if _, err := l.stock.ReturnUnits(l.ctx, spread.Part{SaleID: "s"}, []sale.Order{m}); err != nil {
				l.t.Fatal(err)
			}
		}
	case 4:
		b, _, err := queuetest.Take(l.ctx, q, 1, "")
		if err != nil || len(b.Messages) == 0 {
			return
		}
		if _, err := q.Ack(l.ctx, b.ID, queue.Failure{ID: b.Messages[0].ID, Reason: "no", Permanent: true}); err != nil {
			l.t.Fatal(err)
		}
	case 5:
		l.retryOrCancelDead(l.random, false)
	}
}
