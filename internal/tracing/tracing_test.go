package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func TestEnvironment(t *testing.T) {
	for _, row := range []struct {
		name, env     string
		endpoint, err string
	}{
		{"nothing", "", "", ""},
		{"endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318", "http://c:4318/v1/traces", ""},
		{"endpoint with a path", "OTEL_EXPORTER_OTLP_ENDPOINT=https://c/otlp/", "https://c/otlp/v1/traces", ""},
		{
			"endpoint of traces", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://d:1/x",
			"http://d:1/x", "",
		},
		{"disabled", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_SDK_DISABLED=true", "", ""},
		{"no exporter", "OTEL_EXPORTER_OTLP_ENDPOINT=:: OTEL_TRACES_EXPORTER=none", "", ""},
		{"another exporter", "OTEL_TRACES_EXPORTER=zipkin", "", "OTEL_TRACES_EXPORTER=zipkin"},
		{
			"gRPC", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4317 OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "",
			"OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
		},
		{"no URL", "OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318", "", "OTEL_EXPORTER_OTLP_ENDPOINT: want http://"},
		{"no URL of traces", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=ftp://x", "", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: want"},
		{"ratio", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_TRACES_SAMPLER_ARG=1.5", "", "OTEL_TRACES_SAMPLER_ARG=1.5"},
		{
			"no ratio", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_TRACES_SAMPLER_ARG=NaN", "",
			"OTEL_TRACES_SAMPLER_ARG=NaN",
		},
		{"sampler", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_TRACES_SAMPLER=often", "", "OTEL_TRACES_SAMPLER=often"},
		{"queue", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_BSP_MAX_QUEUE_SIZE=0", "", "OTEL_BSP_MAX_QUEUE_SIZE=0"},
		{
			"too many spans", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_BSP_MAX_QUEUE_SIZE=10000000000", "",
			"OTEL_BSP_MAX_QUEUE_SIZE=10000000000",
		},
		{
			"negative batch", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_BSP_MAX_EXPORT_BATCH_SIZE=-1", "",
			"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=-1",
		},
		{
			"no delay", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c:4318 OTEL_BSP_SCHEDULE_DELAY=0", "",
			"OTEL_BSP_SCHEDULE_DELAY=0",
		},
		{"two errors", "OTEL_EXPORTER_OTLP_ENDPOINT=c OTEL_TRACES_SAMPLER=often", "", "OTEL_TRACES_SAMPLER=often"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s, err := readSettings(variables(row.env))
			if row.err != "" {
				if err == nil || !strings.Contains(err.Error(), row.err) {
					t.Errorf("error %v, want one with %q", err, row.err)
				}
				return
			}
			if err != nil || s.endpoint != row.endpoint || s.on != (row.endpoint != "") {
				t.Errorf("settings %+v, %v, want endpoint %q", s, err, row.endpoint)
			}
		})
	}
	none := func(string) string { return "" }
	if tracer, err := Open(t.Context(), Config{Getenv: none}); tracer != nil || err != nil {
		t.Errorf("Open without an endpoint = %v, %v", tracer, err)
	}
}

// blocked is a collector that does not respond until it is released.
type blocked struct {
	entered, release chan struct{}
	err              error
}

func (b *blocked) ExportSpans(context.Context, []sdk.ReadOnlySpan) error {
	b.entered <- struct{}{}
	<-b.release
	return b.err
}

func (b *blocked) Shutdown(context.Context) error { return nil }

// While a collector does not respond, spans beyond the limit of the queue are dropped, and the end of a span does not
// block. Every span is counted once.
func TestQueueIsBounded(t *testing.T) {
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
	for result, err := range map[string]error{"exported": nil, "failed": errors.New("unavailable")} {
		registry := prometheus.NewRegistry()
		to := &blocked{entered: make(chan struct{}, 100), release: make(chan struct{}), err: err}
		provider := New(newQueue(to, 5, registry), Sampling{Ratio: 1}, "1", nil)
		end := func() {
			_, s := provider.Tracer("x").Start(t.Context(), "x")
			s.End()
		}
		end()
		<-to.entered
		if provider.Full() {
			t.Error("the queue is full with one span")
		}
		for range 19 {
			end()
		}
		if !provider.Full() {
			t.Error("the queue is not full")
		}
		close(to.release)
		if err := provider.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := "# HELP sluice_spans_total Spans by result: exported, failed (the collector did not accept them), " +
			"dropped (too many waited).\n# TYPE sluice_spans_total counter\nsluice_spans_total{result=\"dropped\"} 16\n"
		for _, other := range []string{"exported", "failed"} {
			count := "0"
			if other == result {
				count = "5"
			}
			want += "sluice_spans_total{result=\"" + other + "\"} " + count + "\n"
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
}

// Edges decide without the SDK, so Includes must return its decision.
func TestIncludesIsTheDecisionOfTheSDK(t *testing.T) {
	var both [2]int
	for _, ratio := range []float64{0, 1e-9, 0.01, 0.5, 0.999, 1} {
		reference := sdk.TraceIDRatioBased(ratio)
		for range 10_000 {
			id, _ := ids{}.NewIDs(t.Context())
			want := reference.ShouldSample(sdk.SamplingParameters{ParentContext: t.Context(), TraceID: id}).Decision
			got := Sampling{Ratio: ratio}.Includes(id)
			if got != (want == sdk.RecordAndSample) {
				t.Fatalf("ratio %v, trace %s: %t", ratio, id, got)
			}
			if got {
				both[1]++
			} else {
				both[0]++
			}
		}
	}
	if both[0] == 0 || both[1] == 0 {
		t.Errorf("%d traces are not sampled and %d are", both[0], both[1])
	}
}

func TestDecidedSpansAreSampled(t *testing.T) {
	provider := sdk.NewTracerProvider(sdk.WithSampler(Sampling{}.Sampler()), sdk.WithIDGenerator(ids{}))
	id, span := trace.TraceID{1}, trace.SpanID{2}
	ctx, s := provider.Tracer("x").Start(Decided(t.Context(), id, span), "x")
	if sc := s.SpanContext(); sc.TraceID() != id || sc.SpanID() != span || !sc.IsSampled() {
		t.Errorf("the span has the context %v", sc)
	}
	child := trace.SpanID{3}
	_, s = provider.Tracer("x").Start(Decided(ctx, trace.TraceID{}, child), "x")
	if sc := s.SpanContext(); sc.TraceID() != id || sc.SpanID() != child || !sc.IsSampled() {
		t.Errorf("the span below has the context %v", sc)
	}
	if _, s = provider.Tracer("x").Start(t.Context(), "x"); s.SpanContext().IsSampled() || !s.SpanContext().IsValid() {
		t.Errorf("another span has the context %v", s.SpanContext())
	}
}

// The logged answer of a collector is bounded.
func TestLongAnswerOfACollectorIsCut(t *testing.T) {
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write(bytes.Repeat([]byte("ä"), 1<<20))
	}))
	defer collector.Close()
	var log bytes.Buffer
	p, err := Open(t.Context(), Config{
		Getenv: func(name string) string {
			return map[string]string{
				"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_TRACES_SAMPLER": "always_on",
			}[name]
		},
		Service: "sluice-test", Log: slog.New(slog.NewTextHandler(&log, nil)), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, span := p.Tracer("test").Start(t.Context(), "x")
	span.End()
	p.Close()
	if got := log.String(); !strings.Contains(got, "export failed") || !strings.Contains(got, "400 Bad Request") ||
		len(got) > 2*maxError || !utf8.ValidString(got) {
		t.Errorf("logged %d bytes: %.1000s", len(got), got)
	}
}
