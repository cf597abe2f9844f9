package api

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"sluice/backend/admin"
	"sluice/backend/events"
	"sluice/backend/sale"
	"sluice/internal/problem"
)

// refusal is an answer other than the one that was hoped for, ready for the wire. Those without variable parts are made once: in a
// flood nearly every answer is one of them.
type refusal struct {
	status  int
	body    []byte
	headers []header
}

type header struct{ name, value string }

func (r *refusal) Error() string { return "refused with " + strconv.Itoa(r.status) }

// refusalOf is a refusal without variable parts.
func refusalOf(code problem.Code, detail string, headers ...header) *refusal {
	return refusalWith(problem.New(code, detail), headers...)
}

func refusalWith(d problem.Details, headers ...header) *refusal {
	return &refusal{status: d.Status, body: d.Body(), headers: headers}
}

// with is a copy of r with more headers.
func (r *refusal) with(headers ...header) *refusal {
	return &refusal{status: r.status, body: r.body, headers: append(r.headers[:len(r.headers):len(r.headers)], headers...)}
}

var (
	errNotFound    = refusalOf(problem.NotFound, "There is nothing here.")
	errNoGroup     = refusalOf(problem.NotFound, "There is no group of this name.")
	errNoMethod    = refusalOf(problem.MethodNotAllowed, "This method is not possible here; see the Allow header.")
	errConflict    = refusalOf(problem.Conflict, "This is not possible in the present state.")
	errExists      = refusalOf(problem.Conflict, "This exists already.")
	errUnavailable = refusalOf(problem.Unavailable, "A part of the service is down or overloaded. Please try again.")
	errPending     = refusalOf(problem.Unavailable, "The change is stored and takes effect as soon as Redis answers.")
	errInternal    = refusalOf(problem.Internal, "Something went wrong on our side.")
)

// byError turns the errors of the business into refusals; the first that matches wins.
var byError = []struct {
	is error
	as *refusal
}{
	{sale.ErrUnavailable, errUnavailable},
	{context.DeadlineExceeded, errUnavailable},
	{context.Canceled, errUnavailable},
	{events.ErrNoGroup, errNoGroup}, // before what it wraps
	{sale.ErrNotFound, errNotFound},
	{sale.ErrExists, errExists},
	{sale.ErrConflict, errConflict},
	{fiber.ErrMethodNotAllowed, errNoMethod},
}

// refusalFor turns any error into a refusal; known is false when nobody foresaw it.
func refusalFor(err error) (r *refusal, known bool) {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r, true
	}
	if invalid, ok := errors.AsType[*sale.InvalidError](err); ok {
		d := problem.New(problem.BadRequest, "The request is not valid; see errors.")
		for _, f := range invalid.Fields {
			d.Errors = append(d.Errors, problem.FieldError(f))
		}
		return refusalWith(d), true
	}
	if _, ok := errors.AsType[*admin.PendingError](err); ok {
		return errPending, true
	}
	if refused, ok := errors.AsType[*admin.RefusedError](err); ok {
		return refusalOf(problem.Conflict, refused.Detail), true
	}
	for _, row := range byError {
		if errors.Is(err, row.is) {
			return row.as, true
		}
	}
	if routing, ok := errors.AsType[*fiber.Error](err); ok && routing.Code == fiber.StatusNotFound {
		return errNotFound, true
	}
	return errInternal, false
}

// refuse answers with the refusal that err stands for, and counts it.
func (a *App) refuse(ctx *fasthttp.RequestCtx, count *routeCount, err error) {
	r, known := refusalFor(err)
	resp := &ctx.Response
	resp.ResetBody()
	resp.SetStatusCode(r.status)
	resp.Header.SetContentType(problem.ContentType)
	resp.Header.Set(fiber.HeaderCacheControl, "no-store")
	for _, h := range r.headers {
		resp.Header.Set(h.name, h.value)
	}
	if r.status == fiber.StatusServiceUnavailable && len(resp.Header.Peek(fiber.HeaderRetryAfter)) == 0 {
		resp.Header.Set(fiber.HeaderRetryAfter, a.retryAfter(time.Second))
	}
	resp.SetBody(r.body)
	count.add(r.status)

	a.report(ctx, r, known, err)
}

// report logs a refusal: what nobody foresaw always, an outage once in a while, everything else for whoever wants every one.
func (a *App) report(ctx *fasthttp.RequestCtx, r *refusal, known bool, err error) {
	level := slog.LevelDebug
	switch {
	case !known:
		level = slog.LevelError
	case r == errUnavailable && a.outages.due(a.now()):
		level = slog.LevelWarn
	}
	if a.log.Enabled(context.Background(), level) {
		a.log.Log(logging(ctx), level, "refused", "method", string(ctx.Method()), "path", string(ctx.Path()), "status", r.status, "err", err)
	}
}

// seldom lets one through per outageEvery.
type seldom struct{ last atomic.Int64 }

const outageEvery = 5 * time.Second

func (s *seldom) due(now time.Time) bool {
	last := s.last.Load()
	return now.UnixNano()-last >= int64(outageEvery) && s.last.CompareAndSwap(last, now.UnixNano())
}

// recovered is deferred around everything that handles a request: fasthttp would let a panic end the process.
func (a *App) recovered(ctx *fasthttp.RequestCtx, count *routeCount) {
	if v := recover(); v != nil {
		a.log.ErrorContext(logging(ctx), "panic in a handler", "method", string(ctx.Method()), "path", string(ctx.Path()), "panic", v, "stack", string(debug.Stack()))
		ctx.Response.Reset()
		a.refuse(ctx, count, errInternal)
	}
}

// retryAfter is the value of a Retry-After header for someone who has to wait: whole seconds, never too few, and up to a fifth and
// one second more, so that those who were refused together do not come back together.
func (a *App) retryAfter(wait time.Duration) string {
	wait += time.Duration(a.jitter() * float64(wait/5+time.Second))
	return seconds(wait)
}

// seconds rounds up to whole seconds, at least one.
func seconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64(math.Ceil(d.Seconds()))), 10)
}
