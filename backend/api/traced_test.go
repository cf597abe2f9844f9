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
	"sluice/internal/slogctx"
	"sluice/test/testenv"
)

const sampled = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// A purchase whose trace is sampled is shown, and its order remembers under which span it was accepted. Others leave nothing.
func TestTracedPurchaseIsShownToItsEnd(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	w := newWorld()
	cfg := w.config(t)
	cfg.Tracer = telemetry.New(sdk.NewTracerProvider(sdk.WithSpanProcessor(spans), sdk.WithSampler(telemetry.Sampler(sdk.ParentBased(sdk.NeverSample())))))
	app, err := NewPublic(cfg)
	s := serve(t, app, err)
	if a := s.buy(t, "ann", sampled, "X-Request-Id: r1"); a.status != 202 {
		t.Fatal(a)
	}
	w.do(func() {
		w.admit = func(admission.Request) (admission.Decision, error) { return admission.Decision{}, errRedisDown }
	})
	s.buy(t, "bob", sampled)
	s.buy(t, "cid", strings.TrimSuffix(sampled, "1")+"0")
	s.buy(t, "dan")
	s.ask("GET", "/healthz", "", sampled)

	testenv.Eventually(t, 10*time.Second, "the spans have ended", func() bool { return len(spans.Ended()) >= 4 })
	all := spans.Ended()
	if len(all) != 4 {
		t.Fatalf("%d spans, want those of two purchases: %v", len(all), all)
	}
	var sending, request sdk.ReadOnlySpan = all[0], all[1]
	if sending.Name() != "send orders" || request.Name() != "POST /v1/sales/{sale}/orders" || sending.Parent().SpanID() != request.SpanContext().SpanID() ||
		request.SpanKind() != otel.SpanKindServer || request.Parent().SpanID().String() != "00f067aa0ba902b7" {
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
		"sluice.order.id": orderID(1).String(), "sluice.outcome": sale.Accepted.String(), "sluice.sale.id": "drop", "http.response.status_code": "202",
		"messaging.system": "redis", "http.request.method": "POST", "http.request.header.x-request-id": `["r1"]`, "http.route": "/v1/sales/{sale}/orders",
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

// A log line about a request says which it was, and in which trace.
func TestRefusalsInTheLogNameTheRequestAndTheTrace(t *testing.T) {
	var out bytes.Buffer
	w := newWorld()
	w.admit = func(admission.Request) (admission.Decision, error) { return admission.Decision{}, errRedisDown }
	cfg := w.config(t)
	cfg.Log = slog.New(slogctx.Handler(slog.NewJSONHandler(&out, nil)))
	cfg.Tracer = telemetry.New(sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(sdk.NeverSample()))))
	app, err := NewPublic(cfg)
	s := serve(t, app, err)
	s.buy(t, "ann", sampled, "X-Request-Id: "+strings.Repeat("r", 100))
	s.stop()
	<-s.done
	s.done <- nil
	var line struct {
		Request string `json:"request_id"`
		Trace   string `json:"trace_id"`
		Span    string `json:"span_id"`
		Msg     string
	}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if line.Msg != "refused" || line.Request != strings.Repeat("r", maxLoggedID) || line.Trace != "4bf92f3577b34da6a3ce929d0e0e4736" || len(line.Span) != 16 {
		t.Errorf("%+v", line)
	}
}

func TestProfilesAreForOperatorsOnly(t *testing.T) {
	s := newDeskWorld().serve(t)
	if a := s.ask("GET", "/debug/pprof/heap", ""); a.status != 401 {
		t.Errorf("without the token: %d", a.status)
	}
	if a := s.operate("GET", "/debug/pprof/goroutine?debug=1", ""); a.status != 200 || !strings.Contains(a.body, "goroutine profile: total") {
		t.Errorf("goroutines: %d %.100s", a.status, a.body)
	}
	if a := s.operate("GET", "/debug/pprof/heap", ""); a.status != 200 || !strings.HasPrefix(a.body, "\x1f\x8b") {
		t.Errorf("heap: %d %.100q", a.status, a.body)
	}
	for path, status := range map[string]int{"/debug/pprof/cmdline": 404, "/debug/pprof/nothing": 404, "/debug/pprof/profile?seconds=61": 400, "/debug/pprof/goroutine?seconds=99999": 400} {
		if a := s.operate("GET", path, ""); a.status != status {
			t.Errorf("%s: %d, want %d", path, a.status, status)
		}
	}
	if a := newWorld().serve(t).ask("GET", "/debug/pprof/heap", "", "Authorization: Bearer "+adminToken); a.status != 404 {
		t.Errorf("on the public listener: %d", a.status)
	}
}
