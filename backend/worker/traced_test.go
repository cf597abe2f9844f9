package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	"sluice/backend/sale"
	orderstore "sluice/backend/store"
	"sluice/backend/worker"
)

// shown is a Tracer that records its calls.
type shown struct {
	begun  [][]sale.Order
	failed []map[sale.OrderID]string
	errs   []error
}

type inSpan struct{}

func (s *shown) Begin(
	ctx context.Context,
	orders []sale.Order,
) (context.Context, func(map[sale.OrderID]string, error)) {
	s.begun = append(s.begun, orders)
	return context.WithValue(ctx, inSpan{}, len(s.begun)), func(failed map[sale.OrderID]string, err error) {
		s.failed, s.errs = append(s.failed, failed), append(s.errs, err)
	}
}

// Each batch is shown once, from the take to what became of it, and it is in its span that it is written.
func TestTracerGetsEachBatchWithItsOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var spans []any
		bad := order(2).ID
		q := newQueue(orders(3), orders(1))
		tracer := &shown{}
		stop := start(t, q, storeFunc(func(ctx context.Context, all []sale.Order) error {
			spans = append(spans, ctx.Value(inSpan{}))
			if slices.ContainsFunc(all, func(o sale.Order) bool { return o.ID == bad }) {
				return fmt.Errorf("%w: would oversell", orderstore.ErrRejected)
			}
			return nil
		}), worker.Config{Tracer: tracer})
		<-q.emptied
		stop()
		if len(tracer.begun) != 2 || len(tracer.begun[0]) != 3 || len(tracer.failed) != 2 {
			t.Fatalf("%d batches are shown, %d to their end", len(tracer.begun), len(tracer.failed))
		}
		if failed := tracer.failed[0]; len(failed) != 1 || failed[bad] == "" || len(tracer.failed[1]) != 0 ||
			errors.Join(tracer.errs...) != nil {
			t.Errorf("failed %v, errors %v", tracer.failed, tracer.errs)
		}
		if last := len(spans) - 1; spans[0] != 1 || spans[last-1] != 1 || spans[last] != 2 {
			t.Errorf("writes in the spans %v", spans)
		}
	})
}

// A worker pauses while the store is unavailable, and the metrics show the number of paused loops and the reason.
func TestPausesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &counts{}
		q := newQueue(orders(2))
		q.takeErrs = []error{errDown}
		tries := 0
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		w := worker.New(q, storeFunc(func(context.Context, []sale.Order) error {
			if tries++; tries <= 3 {
				return errDown
			}
			return nil
		}), worker.Config{Concurrency: 1, Metrics: m, Log: slog.New(slog.DiscardHandler)})
		go func() { done <- w.Run(ctx) }()
		<-q.emptied
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if m.paused[worker.KindQueue] != 1 || m.paused[worker.KindUnavailable] != 3 || m.waiting != 0 {
			t.Errorf("pauses %v, and %d loops wait in the end", m.paused, m.waiting)
		}
	})
}
