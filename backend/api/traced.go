package api

import (
	"context"
	"log/slog"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"sluice/backend/telemetry"
	"sluice/internal/slogctx"
)

// spanKey is under which a request that is traced has its span.
type spanKey struct{}

// spans makes what begins the span of a request to a route, and ends it. Requests of machines that look whether this one is alive are not worth a span.
func (a *App) spans(method, path string) func(*fasthttp.RequestCtx) (end func()) {
	route := documentedPath(path)
	if a.tracer == nil || !strings.HasPrefix(path, "/v1/") {
		return func(*fasthttp.RequestCtx) func() { return untraced }
	}
	return func(ctx *fasthttp.RequestCtx) func() {
		span := a.tracer.Request(method, route, func(name string) string { return string(ctx.Request.Header.Peek(name)) })
		if span == nil {
			return untraced
		}
		ctx.SetUserValue(spanKey{}, span)
		return func() { span.End(ctx.Response.StatusCode()) }
	}
}

func untraced() {}

// documentedPath is a route as documentation writes it: /a/{b} for Fiber's /a/:b.
func documentedPath(route string) string {
	parts := strings.Split(route, "/")
	for i, part := range parts {
		if name, parameter := strings.CutPrefix(part, ":"); parameter {
			parts[i] = "{" + name + "}"
		}
	}
	return strings.Join(parts, "/")
}

// spanOf is the span of a request, or nil.
func spanOf(ctx *fasthttp.RequestCtx) *telemetry.Request {
	span, _ := ctx.UserValue(spanKey{}).(*telemetry.Request)
	return span
}

// logging is a context for a log line about a request: it says which request, and in which trace.
func logging(ctx *fasthttp.RequestCtx) context.Context {
	about := spanOf(ctx).Context()
	if id := ctx.Request.Header.Peek(fiber.HeaderXRequestID); len(id) > 0 {
		about = slogctx.With(about, slog.String("request_id", string(id[:min(len(id), maxLoggedID)])))
	}
	return about
}

// maxLoggedID bounds what a request may write into the log as its id. Edges send 32 bytes.
const maxLoggedID = 64
