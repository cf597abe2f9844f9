package httpserver

import (
	"context"
	"log/slog"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"sluice/backend/telemetry"
	"sluice/internal/slogctx"
)

// spanKey is the user value that holds the span of a traced request.
type spanKey struct{}

// beginSpan begins the span of a request to a route. It returns nil for a request that is not traced. Only routes below
// /v1/ have spans; health checks do not.
func (s *Server) beginSpan(ctx *fasthttp.RequestCtx, method, route string) *telemetry.Request {
	if !strings.HasPrefix(route, "/v1/") {
		return nil
	}
	header := func(name string) string { return string(ctx.Request.Header.Peek(name)) }
	span := s.cfg.Tracer.Request(method, route, ctx.Path(), header)
	if span != nil {
		ctx.SetUserValue(spanKey{}, span)
	}
	return span
}

// Span returns the span of a request, or nil.
func Span(ctx *fasthttp.RequestCtx) *telemetry.Request {
	span, _ := ctx.UserValue(spanKey{}).(*telemetry.Request)
	return span
}

// LogContext returns a context for log lines about a request. It adds the request id and the trace.
func LogContext(ctx *fasthttp.RequestCtx) context.Context {
	about := Span(ctx).Context()
	if id := ctx.Request.Header.Peek(fiber.HeaderXRequestID); len(id) > 0 {
		about = slogctx.With(about, slog.String("request_id", string(id[:min(len(id), maxLoggedID)])))
	}
	return about
}

// maxLoggedID bounds the request id in log lines. Edges send 32 bytes.
const maxLoggedID = 64
