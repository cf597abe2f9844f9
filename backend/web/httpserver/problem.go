package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"sluice/backend/sale"
	"sluice/backend/web/page"
	"sluice/internal/problem"
)

// Problem is an error that Handle answers with a problem+json body (RFC 9457). Problems without variable parts are
// rendered once: during a flash sale nearly every response is one of them.
type Problem struct {
	Status  int
	body    []byte
	headers []Header
}

// Header is a response header, as pages have them.
type Header = page.Header

func (p *Problem) Error() string { return "HTTP status " + strconv.Itoa(p.Status) }

// NewProblem returns a problem with a detail for the client.
func NewProblem(code problem.Code, detail string, headers ...Header) *Problem {
	return ProblemOf(problem.New(code, detail), headers...)
}

// ProblemOf returns a problem with the given details.
func ProblemOf(d problem.Details, headers ...Header) *Problem {
	return &Problem{Status: d.Status, body: d.Body(), headers: headers}
}

// With returns a copy of p with more headers.
func (p *Problem) With(headers ...Header) *Problem {
	return &Problem{Status: p.Status, body: p.body, headers: append(p.headers[:len(p.headers):len(p.headers)], headers...)}
}

// The problems that both APIs return.
var (
	ErrNotFound    = NewProblem(problem.NotFound, "Not found.")
	ErrNoSale      = NewProblem(problem.NotFound, "There is no such sale.")
	ErrConflict    = NewProblem(problem.Conflict, "The current state does not allow this.")
	ErrUnavailable = NewProblem(problem.Unavailable, "The service is temporarily unavailable. Please try again.")
	ErrInternal    = NewProblem(problem.Internal, "Something went wrong on our side.")
	// ErrUnauthorized does not state why a token is rejected, which would help attackers only. The log has the reason.
	ErrUnauthorized = NewProblem(problem.Unauthorized, "A valid token is required.",
		Header{Name: fiber.HeaderWWWAuthenticate, Value: `Bearer error="invalid_token"`})

	errExists   = NewProblem(problem.Conflict, "It already exists.")
	errNoMethod = NewProblem(problem.MethodNotAllowed, "This method is not allowed here; see the Allow header.")
)

// byError maps domain errors to problems. The first match wins.
var byError = []struct {
	err error
	as  *Problem
}{
	{sale.ErrUnavailable, ErrUnavailable},
	{context.DeadlineExceeded, ErrUnavailable},
	{context.Canceled, ErrUnavailable},
	{sale.ErrNotFound, ErrNotFound},
	{sale.ErrExists, errExists},
	{sale.ErrConflict, ErrConflict},
	{fiber.ErrMethodNotAllowed, errNoMethod},
}

// ProblemFor maps any error to a problem; known is false for an unexpected error, which becomes ErrInternal.
func ProblemFor(err error) (p *Problem, known bool) {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p, true
	}
	if invalid, ok := errors.AsType[*sale.InvalidError](err); ok {
		d := problem.New(problem.BadRequest, "The request is not valid; see errors.")
		for _, f := range invalid.Fields {
			d.Errors = append(d.Errors, problem.FieldError(f))
		}
		return ProblemOf(d), true
	}
	for _, row := range byError {
		if errors.Is(err, row.err) {
			return row.as, true
		}
	}
	if routing, ok := errors.AsType[*fiber.Error](err); ok && routing.Code == fiber.StatusNotFound {
		return ErrNotFound, true
	}
	return ErrInternal, false
}

// refuse answers with the problem for err, counts it and logs it.
func (s *Server) refuse(ctx *fasthttp.RequestCtx, count *routeCount, err error) {
	var p *Problem
	known := true
	if s.cfg.Problem != nil {
		p = s.cfg.Problem(err)
	}
	if p == nil {
		p, known = ProblemFor(err)
	}
	resp := &ctx.Response
	resp.ResetBody()
	resp.SetStatusCode(p.Status)
	resp.Header.SetContentType(problem.ContentType)
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	for _, h := range p.headers {
		resp.Header.Set(h.Name, h.Value)
	}
	if p.Status == fiber.StatusServiceUnavailable && len(resp.Header.Peek(fiber.HeaderRetryAfter)) == 0 {
		resp.Header.Set(fiber.HeaderRetryAfter, s.RetryAfter(time.Second))
	}
	resp.SetBody(p.body)
	count.add(p.Status)
	s.report(ctx, p, known, err)
}

// report logs an error response: unexpected errors always, outages at most once in five seconds, all others at
// debug level.
func (s *Server) report(ctx *fasthttp.RequestCtx, p *Problem, known bool, err error) {
	level := slog.LevelDebug
	switch {
	case !known:
		level = slog.LevelError
	case p == ErrUnavailable && s.outages.AllowN(s.Now(), 1):
		level = slog.LevelWarn
	}
	if s.Log().Enabled(context.Background(), level) {
		s.Log().Log(LogContext(ctx), level, "request refused",
			"method", string(ctx.Method()), "path", string(ctx.Path()), "status", p.Status, "err", err)
	}
}

// recovered turns a panic into a 500. It is deferred around every handler, because fasthttp would let the panic end
// the process.
func (s *Server) recovered(ctx *fasthttp.RequestCtx, count *routeCount) {
	if v := recover(); v != nil {
		s.Log().ErrorContext(LogContext(ctx), "panic in a handler",
			"method", string(ctx.Method()), "path", string(ctx.Path()), "panic", v, "stack", string(debug.Stack()))
		ctx.Response.Reset()
		s.refuse(ctx, count, ErrInternal)
	}
}

// RetryAfter returns the value of a Retry-After header: whole seconds, never less than wait. It adds up to a fifth of
// wait and one second, so that clients that were rejected together do not return together.
func (s *Server) RetryAfter(wait time.Duration) string {
	wait += time.Duration(s.cfg.Jitter() * float64(wait/5+time.Second))
	return Seconds(wait)
}

// Seconds rounds up to whole seconds, at least one.
func Seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64(math.Ceil(d.Seconds()))), 10)
}
