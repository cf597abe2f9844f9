// Package api is sluice over HTTP: the public routes that an edge passes on, and the operator's routes on a listener of their own.
// It turns requests into calls of small interfaces (ports.go) and what they answer into JSON or problem details. It decides nothing
// about a sale itself, keeps nothing that must survive, and is the only package that imports Fiber.
package api

import (
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"sluice/backend/telemetry"
)

// App is one HTTP application, made by NewPublic or NewOperator and run by Serve.
type App struct {
	fiber   *fiber.App
	log     *slog.Logger
	metrics *Metrics
	tracer  *telemetry.Tracer
	now     func() time.Time
	jitter  func() float64
	drain   time.Duration
	routes  []endpoint

	outages seldom
	room    *waitingRoom // of the public application
	streams *feeds       // of the public application
	roll    rollCall     // of its event streams

	listening atomic.Int64 // edges that listen to signals

	unmatched, malformed *routeCount // requests that reached no route, and those that were not HTTP

	stopping chan struct{} // closed when the drain begins: streams end and waits answer at once
	stopOnce sync.Once
}

// endpoint is one route, as the documentation must list it.
type endpoint struct{ method, path string }

// settings are what both applications have in common.
type settings struct {
	log       *slog.Logger
	metrics   *Metrics
	tracer    *telemetry.Tracer
	now       func() time.Time
	jitter    func() float64
	drain     time.Duration
	bodyLimit int
}

// DefaultDrain is how long Serve waits for open requests after its context ends.
const DefaultDrain = 20 * time.Second

const (
	// headLimit bounds the request line and headers together; beyond it the answer is 431.
	headLimit = 16 << 10
	// readTimeout bounds how long a whole request may take to arrive.
	readTimeout = 10 * time.Second
	// writeTimeout bounds how long an answer may take to leave once it is ready. Event streams renew it with every event.
	writeTimeout = 10 * time.Second
	// idleTimeout exceeds the 60 s for which nginx keeps an idle upstream connection, so that nginx closes first and never
	// sends a request into a connection that is just being closed.
	idleTimeout = 75 * time.Second
)

func newApp(s settings) *App {
	a := &App{log: s.log, metrics: s.metrics, tracer: s.tracer, now: s.now, jitter: s.jitter, drain: s.drain, stopping: make(chan struct{})}
	if a.log == nil {
		a.log = slog.Default()
	}
	if a.metrics == nil {
		a.metrics = NewMetrics(nil)
	}
	if a.now == nil {
		a.now = time.Now
	}
	if a.jitter == nil {
		a.jitter = rand.Float64
	}
	if a.drain <= 0 {
		a.drain = DefaultDrain
	}
	a.unmatched, a.malformed = a.metrics.route("unmatched"), a.metrics.route("malformed")
	a.fiber = fiber.New(fiber.Config{
		DisableStartupMessage:        true,
		DisablePreParseMultipartForm: true,
		StrictRouting:                true,
		CaseSensitive:                true,
		BodyLimit:                    s.bodyLimit,
		ReadBufferSize:               headLimit,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		ErrorHandler: func(c *fiber.Ctx, err error) error { // routing errors only: routes answer their own
			a.refuse(c.Context(), a.unmatched, err)
			return nil
		},
	})
	return a
}

// finish wraps the server around the routes that were added; nothing may be added afterwards.
func (a *App) finish() {
	a.addReference()
	server, routed := a.fiber.Server(), a.fiber.Handler()
	server.Handler = func(ctx *fasthttp.RequestCtx) {
		defer a.recovered(ctx, a.unmatched)
		if ambiguousFraming(&ctx.Request.Header) {
			ctx.SetConnectionClose()
			a.refuse(ctx, a.malformed, errFraming)
			return
		}
		if !knownMethod(ctx.Method()) { // Fiber would answer in plain text
			a.refuse(ctx, a.unmatched, errMethod)
			return
		}
		routed(ctx)
	}
	server.ErrorHandler = func(ctx *fasthttp.RequestCtx, err error) {
		leftUnread(ctx.Conn())
		a.refuse(ctx, a.malformed, unreadable(err))
	}
	server.HeaderReceived = streamConfig
	server.CloseOnShutdown = true
}

// handle adds a route; GET routes answer HEAD too. A handler's error becomes a problem, and a panic a 500.
func (a *App) handle(method, path string, h fiber.Handler) {
	a.routes = append(a.routes, endpoint{method, path})
	count := a.metrics.route(path)
	span := a.spans(method, path)
	serve := func(c *fiber.Ctx) error {
		ctx := c.Context()
		defer span(ctx)()
		defer a.recovered(ctx, count)
		if err := h(c); err != nil {
			a.refuse(ctx, count, err)
			return nil
		}
		count.add(ctx.Response.StatusCode())
		return nil
	}
	a.fiber.Add(method, path, serve)
	if method == fiber.MethodGet {
		a.fiber.Add(fiber.MethodHead, path, serve)
	}
}

// stop begins the drain.
func (a *App) stop() { a.stopOnce.Do(func() { close(a.stopping) }) }

func (a *App) draining() bool {
	select {
	case <-a.stopping:
		return true
	default:
		return false
	}
}
