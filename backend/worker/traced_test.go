package worker_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/alicebob/miniredis/v2"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	orderstore "sluice/backend/store"
	"sluice/backend/telemetry"
	"sluice/backend/worker"
	"sluice/test/testenv"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// A batch with a traced order has one span, from its writes to its outcome. The writes are in it.
func TestBatchOfATracedOrderHasASpan(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	client := testenv.NewClient(miniredis.RunT(t).Addr())
	t.Cleanup(func() { _ = client.Close() })
	bad := order(2).ID
	client.Set(t.Context(), keyspace.Shard(0).Trace(bad.String()), traceparent, 0)

	var inSpan []bool
	q := newQueue(orders(3), orders(1))
	stop := start(t, q, storeFunc(func(ctx context.Context, all []sale.Order) error {
		inSpan = append(inSpan, trace.SpanContextFromContext(ctx).IsSampled())
		if slices.ContainsFunc(all, func(o sale.Order) bool { return o.ID == bad }) {
			return fmt.Errorf("%w: would oversell", orderstore.ErrRejected)
		}
		return nil
	}), worker.Config{Tracer: telemetry.New(provider, "1"), Parents: telemetry.NewParents(client, keyspace.Space{})})
	<-q.emptied
	stop()

	ended := spans.Ended()
	if len(ended) != 2 || ended[0].Name() != "process orders" || ended[1].Name() != "process orders" {
		t.Fatalf("spans %v, want that of the order and that of its batch", ended)
	}
	own, batch := ended[0], ended[1]
	if own.Parent().TraceID().String() != traceparent[3:35] || !strings.Contains(own.Status().Description, "oversell") {
		t.Errorf("the order's span has parent %v and status %+v", own.Parent(), own.Status())
	}
	if len(batch.Links()) != 1 || batch.Status().Description != "some orders failed" {
		t.Errorf("the batch has links %v and status %+v", batch.Links(), batch.Status())
	}
	if last := len(inSpan) - 1; last < 2 || slices.Contains(inSpan[:last], false) || inSpan[last] {
		t.Errorf("writes in a span: %v, want all but that of the second batch, which has no traced order", inSpan)
	}
}

// A worker pauses while the store is unavailable, and the metrics show the number of paused loops and the reason.
func TestPausesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &counts{}
		q := newQueue(orders(2))
		q.takeErrs = []error{errDown}
		tries := 0
		w := worker.New(q, storeFunc(func(context.Context, []sale.Order) error {
			if tries++; tries <= 3 {
				return errDown
			}
			return nil
		}), worker.Config{Concurrency: 1, Metrics: m, Log: slog.New(slog.DiscardHandler)})
		stop := testenv.Run(t, w.Run)
		<-q.emptied
		stop()
		if m.paused[worker.KindQueue] != 1 || m.paused[worker.KindUnavailable] != 3 || m.waiting != 0 {
			t.Errorf("pauses %v, and %d loops wait at the end", m.paused, m.waiting)
		}
	})
}
