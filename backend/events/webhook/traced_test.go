package webhook

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"sluice/backend/events"
	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
	"sluice/backend/telemetry"
	"sluice/internal/tracing"
	"sluice/test/testenv"
)

// Requests about a traced order carry its trace at every attempt; others, and pings, carry none.
func TestRequestsCarryTheTraceOfTheirOrder(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	mini := miniredis.RunT(t)
	notes := testenv.NewClient(mini.Addr())
	t.Cleanup(func() { _ = notes.Close() })
	if err := mini.Set(keyspace.Shard(0).Trace(sale.OrderID(1).String()), parent); err != nil {
		t.Fatal(err)
	}
	spans := tracetest.NewSpanRecorder()
	tracer := telemetry.New(
		sdk.NewTracerProvider(sdk.WithSpanProcessor(spans),
			sdk.WithSampler(tracing.Sampling{FollowParent: true}.Sampler())), "1",
	)

	got := make(chan string, 100)
	first := true
	shop := newShop(t, func(w http.ResponseWriter, r *http.Request, id string) bool {
		got <- id[:1] + " " + r.Header.Get("traceparent")
		if strings.HasPrefix(id, "1_") && first {
			first = false
			w.WriteHeader(http.StatusInternalServerError)
			return false
		}
		return true
	})
	c := client(t, time.Minute)
	b := newBench(t, c)
	e := b.endpoint(t, shop, false)
	if err := Handler(
		b.Store,
		func(int64) {},
	)(t.Context(), []events.Event{happened(1, events.Created, "s", 1), happened(2, events.Created, "s", 2)}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.admin.Ping(t.Context(), e.ID); err != nil {
		t.Fatal(err)
	}
	cfg := quick()
	cfg.Tracer, cfg.Parents, cfg.Log = tracer, telemetry.NewParents(notes, keyspace.Space{}), slog.New(slog.DiscardHandler)
	stop := testenv.Run(t, NewSender(b.Store, c, everything, cfg).Run)
	testenv.Eventually(t, time.Minute, "three deliveries", func() bool { return len(shop.ids()) == 3 })
	stop()
	close(got)
	seen := map[string]bool{}
	for line := range got {
		who, carried, _ := strings.Cut(line, " ")
		if traced := strings.HasPrefix(carried, parent[:36]); traced != (who == "1") || !traced && carried != "" {
			t.Errorf("the request about %s carries %q", who, carried)
		}
		seen[carried] = true
	}
	ended := spans.Ended()
	if len(ended) != 2 {
		t.Fatalf("%d spans, want one for each of two attempts", len(ended))
	}
	for _, s := range ended {
		if sc := s.SpanContext(); !seen["00-"+sc.TraceID().String()+"-"+sc.SpanID().String()+"-01"] ||
			s.Parent().SpanID().String() != parent[36:52] {
			t.Errorf("span %s below %s was carried by no request", sc.SpanID(), s.Parent().SpanID())
		}
	}
}
