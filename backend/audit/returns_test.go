package audit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/spread"
	"sluice/backend/store"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

func (s *shop) cancel(o sale.Order) {
	s.t.Helper()
	if _, _, err := s.store.CancelOrder(s.t.Context(), o.ID); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) returnUnit(o sale.Order) int64 {
	s.t.Helper()
	numbers, err := s.stock.ReturnUnits(s.t.Context(), spread.Part{SaleID: "s"}, []sale.Order{o})
	if err != nil {
		s.t.Fatal(err)
	}
	return numbers[0]
}

// The audit balances before and after each step of a return. The order is still leased by the worker that wrote it.
func TestAuditCountsAReturnedUnitOnceAtEachStep(t *testing.T) {
	s := open(t, 5)
	ctx := t.Context()
	s.buy("ann")
	s.buy("bob")
	b := s.take(1)
	want := func(left, ready, leased, ordered, returning int64) {
		t.Helper()
		r := s.audit()
		if got := [5]int64{r.Left, r.Ready, r.Leased, r.Ordered, r.Returning}; !r.Balanced ||
			got != [5]int64{left, ready, leased, ordered, returning} {
			t.Fatalf("left, ready, leased, ordered, returning = %v: %+v", got, r)
		}
	}
	want(3, 1, 1, 0, 0)
	o := b.Messages[0]
	if err := s.store.Write(ctx, b.Messages); err != nil {
		t.Fatal(err)
	}
	want(3, 1, 0, 1, 0)
	s.cancel(o)
	want(3, 1, 0, 1, 1)
	n := s.returnUnit(o)
	want(4, 1, 0, 0, 0)
	if err := s.store.MarkReturned(ctx, []store.Return{{ID: o.ID, Number: n}}); err != nil {
		t.Fatal(err)
	}
	want(4, 1, 0, 0, 0)
	if err := s.stock.ConfirmReturns(ctx, spread.Part{SaleID: "s"}, []sale.Order{o}); err != nil {
		t.Fatal(err)
	}
	want(4, 1, 0, 0, 0)
	failure := queue.Failure{ID: o.ID, Reason: "no", Permanent: true} // after the return
	if _, err := s.queue.Ack(ctx, b.ID, failure); err != nil {
		t.Fatal(err)
	}
	want(4, 1, 0, 0, 0)
}

func TestAuditReportsAUnitThatWasReturnedTwice(t *testing.T) {
	s := open(t, 5)
	s.buy("ann")
	b := s.take(1)
	if err := s.store.Write(t.Context(), b.Messages); err != nil {
		t.Fatal(err)
	}
	s.cancel(b.Messages[0])
	n := s.returnUnit(b.Messages[0])
	if err := s.store.MarkReturned(t.Context(), []store.Return{{ID: b.Messages[0].ID, Number: n}}); err != nil {
		t.Fatal(err)
	}
	if r := s.audit(); !r.Balanced {
		t.Fatalf("before: %+v", r)
	}
	shard := "sluice:{0}:sale:s"
	s.redis.Incr(t.Context(), shard+":stock")
	s.redis.HIncrBy(t.Context(), shard, "returned", 1)
	if r := s.audit(); r.Balanced {
		t.Fatalf("a unit was returned twice, and the audit balances: %+v", r)
	}
}

// Buyers, workers, cancellations and returns run concurrently. The audit balances at every instant.
func TestAuditBalancesWhileOrdersAreCancelled(t *testing.T) {
	const stock = 40
	s := open(t, stock)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var others errgroup.Group
	for range 2 {
		others.Go(func() error { return worker.New(s.queue, s.store, worker.Config{Batch: 5}).Run(ctx) })
	}
	for by := range 2 {
		others.Go(func() error { // cancels rows, and returns the units of all cancelled orders
			for ctx.Err() == nil {
				rows, err := s.store.OrderRows(ctx, store.OrderQuery{SaleID: "s", Status: sale.StatusCreated, Limit: 3 + by})
				if err == nil {
					for _, r := range rows {
						_, _, err = s.store.CancelOrder(ctx, r.ID)
						if err != nil {
							break
						}
					}
				}
				var orders []sale.Order
				if err == nil {
					orders, err = s.store.Returning(ctx, 0, 0, 10)
				}
				var numbers []int64
				if err == nil {
					numbers, err = s.stock.ReturnUnits(ctx, spread.Part{SaleID: "s"}, orders)
				}
				if err == nil {
					returns := make([]store.Return, len(orders))
					for i, o := range orders {
						returns[i] = store.Return{ID: o.ID, Number: numbers[i]}
					}
					if err = s.store.MarkReturned(ctx, returns); err == nil {
						err = s.stock.ConfirmReturns(ctx, spread.Part{SaleID: "s"}, orders)
					}
				}
				if err != nil && ctx.Err() == nil && !errors.Is(err, sale.ErrConflict) {
					return err
				}
			}
			return nil
		})
	}
	var buyers errgroup.Group
	enough := make(chan struct{})
	for b := range 4 {
		buyers.Go(func() error {
			for i := 0; ; i++ {
				select {
				case <-enough:
					return nil
				default:
					s.buy(fmt.Sprintf("b%d-%d", b, i%50))
				}
			}
		})
	}
	returning := 0
	for audits := 0; audits < 200 && (audits < 20 || returning < 5); audits++ {
		r := s.audit()
		if !r.Balanced {
			t.Errorf("audit %d: %+v", audits, r)
			break
		}
		if r.Returning > 0 {
			returning++
		}
	}
	testenv.Eventually(t, time.Minute, "more orders were cancelled than the sale has units", func() bool {
		cancelled, err := s.store.OrderRows(
			t.Context(), store.OrderQuery{SaleID: "s", Status: sale.StatusCancelled, Limit: stock + 1},
		)
		return err == nil && len(cancelled) > stock
	})
	close(enough)
	_ = buyers.Wait()
	testenv.Eventually(t, time.Minute, "every unit is left", func() bool {
		r := s.audit()
		return r.Balanced && r.Left == stock
	})
	stop()
	if err := others.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if returning == 0 {
		t.Error("no audit found returning units")
	}
}
