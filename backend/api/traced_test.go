package api

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	otel "go.opentelemetry.io/otel/trace"

	"sluice/backend/admission"
	"sluice/backend/sale"
	"sluice/backend/telemetry"
	"sluice/backend/web/httpserver/servertest"
	"sluice/internal/slogctx"
	"sluice/internal/tracing"
	"sluice/test/testenv"
)

const sampled = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// A purchase with a sampled trace is recorded, and its order stores the span of its acceptance. Other purchases have no
// spans.
func TestTracedPurchaseHasItsSpans(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	w := newWorld()
	cfg := w.config(t)
	cfg.Server.Tracer = telemetry.New(
		sdk.NewTracerProvider(sdk.WithSpanProcessor(spans),
			sdk.WithSampler(tracing.Sampling{FollowParent: true}.Sampler())), "1",
	)
	s := serve(t, cfg)
	if a := s.buy(t, "ann", sampled, "X-Request-Id: r1"); a.Status != 202 {
		t.Fatal(a)
	}
	w.do(func() {
		w.admit = func(admission.Request) (admission.Decision, error) {
			return admission.Decision{}, servertest.ErrRedisDown
		}
	})
	s.buy(t, "bob", sampled)
	s.buy(t, "cid", strings.TrimSuffix(sampled, "1")+"0")
	s.buy(t, "dan")
	s.Do("GET", "/healthz", "", sampled)

	testenv.Eventually(t, time.Minute, "the spans have ended", func() bool { return len(spans.Ended()) >= 4 })
	all := spans.Ended()
	if len(all) != 4 {
		t.Fatalf("%d spans, want those of two purchases: %v", len(all), all)
	}
	sending, request := all[0], all[1]
	if sending.Name() != "send orders" || request.Name() != "POST /v1/sales/{sale}/orders" ||
		sending.Parent().SpanID() != request.SpanContext().SpanID() ||
		request.SpanKind() != otel.SpanKindServer ||
		request.Parent().SpanID().String() != "00f067aa0ba902b7" {
		t.Errorf("%s below %s below %v", sending.Name(), request.Name(), request.Parent())
	}
	want := "00-4bf92f3577b34da6a3ce929d0e0e4736-" + sending.SpanContext().SpanID().String() + "-01"
	w.do(func() {
		for i, traceparent := range []string{want, "00-", "", ""} {
			if got := w.requests[i].Trace; i == 0 && got != want || traceparent == "" && got != "" {
				t.Errorf("%s was accepted under %q", w.requests[i].Buyer, got)
			}
		}
	})
	attributes := map[string]string{}
	for _, a := range append(sending.Attributes(), request.Attributes()...) {
		attributes[string(a.Key)] = a.Value.String()
	}
	for name, want := range map[string]string{
		"sluice.order.id": servertest.OrderID(1).String(), "sluice.outcome": string(sale.Accepted), "sluice.sale.id": "drop",
		"http.response.status_code": "202",
		"messaging.system":          "redis", "http.request.method": "POST", "http.request.header.x-request-id": `["r1"]`,
		"http.route": "/v1/sales/{sale}/orders",
	} {
		if attributes[name] != want {
			t.Errorf("%s is %q, want %q", name, attributes[name], want)
		}
	}
	for _, value := range attributes {
		if strings.Contains(value, "ann") {
			t.Errorf("a span names the buyer: %v", attributes)
		}
	}
	if failed := all[3]; failed.Status().Code.String() != "Error" {
		t.Errorf("a purchase that got 503 has the status %v", failed.Status())
	}
}

// A log line about a request contains the request id and the trace.
func TestRefusalsInTheLogNameTheRequestAndTheTrace(t *testing.T) {
	var out bytes.Buffer
	w := newWorld()
	w.admit = func(admission.Request) (admission.Decision, error) {
		return admission.Decision{}, servertest.ErrRedisDown
	}
	cfg := w.config(t)
	cfg.Server.Log = slog.New(slogctx.Handler(slog.NewJSONHandler(&out, nil)))
	cfg.Server.Tracer = telemetry.New(sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(sdk.NeverSample()))), "1")
	s := serve(t, cfg)
	s.buy(t, "ann", sampled, "X-Request-Id: "+strings.Repeat("r", 100))
	s.Stop()
	<-s.Done
	s.Done <- nil
	var line struct {
		Request string `json:"request_id"`
		Trace   string `json:"trace_id"`
		Span    string `json:"span_id"`
		Msg     string
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if line.Msg != "request refused" || line.Request != strings.Repeat("r", 64) ||
		line.Trace != "4bf92f3577b34da6a3ce929d0e0e4736" ||
		len(line.Span) != 16 {
		t.Errorf("%+v", line)
	}
}
