package slogctx_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"sluice/internal/slogctx"
)

func TestHandlerAddsContextAttributes(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slogctx.Handler(slog.NewJSONHandler(&out, nil))).With("part", "api")
	ctx := trace.ContextWithSpanContext(context.Background(),
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
	ctx = slogctx.With(ctx, slog.String("request_id", "r1"))
	inner := slogctx.With(ctx, slog.String("order", "12"))
	slogctx.With(ctx, slog.String("order", "13")) // of another context
	log.InfoContext(inner, "written", "sale", "s")
	log.Info("no context")

	lines := json.NewDecoder(&out)
	for _, want := range []map[string]string{
		{
			"part": "api", "sale": "s", "request_id": "r1", "order": "12", "trace_id": "01000000000000000000000000000000",
			"span_id": "0200000000000000",
		},
		{"part": "api"},
	} {
		var got map[string]any
		if err := lines.Decode(&got); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"part", "sale", "request_id", "order", "trace_id", "span_id"} {
			if value, _ := got[key].(string); value != want[key] {
				t.Errorf("%v: %s is %q, want %q", got["msg"], key, value, want[key])
			}
		}
	}
}
