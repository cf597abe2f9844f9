// Package slogctx adds attributes of the context to log lines: trace_id and span_id of the current span, and the
// attributes passed to With, for example request_id.
package slogctx

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

type key struct{}

// With returns a copy of ctx with attributes for every log line with that context.
func With(ctx context.Context, attrs ...slog.Attr) context.Context {
	before, _ := ctx.Value(key{}).([]slog.Attr)
	return context.WithValue(ctx, key{}, append(before[:len(before):len(before)], attrs...))
}

// Handler returns a handler that adds the attributes of the context and calls next.
func Handler(next slog.Handler) slog.Handler { return handler{next} }

type handler struct{ slog.Handler }

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	if ctx == nil {
		return h.Handler.Handle(ctx, r)
	}
	if attrs, _ := ctx.Value(key{}).([]slog.Attr); len(attrs) > 0 {
		r.AddAttrs(attrs...)
	}
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}

func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }
