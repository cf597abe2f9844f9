// Package slogctx adds to log lines what their context knows: the trace and the span that are open, and what With was told, such as the id of a request. It is the one
// place that does, so that the keys are the same everywhere: request_id, trace_id, span_id.
package slogctx

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

type key struct{}

// With is ctx with attributes for every line that is logged with it.
func With(ctx context.Context, attrs ...slog.Attr) context.Context {
	before, _ := ctx.Value(key{}).([]slog.Attr)
	return context.WithValue(ctx, key{}, append(before[:len(before):len(before)], attrs...))
}

// Handler is next with what contexts know.
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
