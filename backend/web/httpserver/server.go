// Package httpserver provides the HTTP server that the public API and the admin API share: limits and timeouts,
// problem+json answers, strict decoding of bodies and queries, event streams, request counters and spans, health checks
// and the API reference. It defines no route of either API and decides nothing about sales. Only this package and the
// packages of the two APIs import Fiber.
package httpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"golang.org/x/time/rate"

	"sluice/backend/telemetry"
)

// Server holds the routes of one listener. Register them with Handle, then call Finish once, then Serve.
type Server struct {
	cfg    Config
	fiber  *fiber.App
	routes []Route

	outages   *rate.Limiter // limits log lines about outages
	unmatched *routeCount   // requests that match no route
	malformed *routeCount   // requests that are not valid HTTP

	serving context.Context    // ends when the drain begins
	drain   context.CancelFunc // ends serving
	streams sync.Map           // of *EventStream
	sweeps  *rate.Limiter      // limits the searches for streams of disconnected clients
}

// Route is one route in Fiber's notation.
type Route struct{ Method, Path string }

// Documented returns the path as OpenAPI writes it: /a/{b} for Fiber's /a/:b, without a trailing slash.
func (r Route) Documented() string {
	if r.Path == "/" {
		return r.Path
	}
	parts := strings.Split(strings.TrimSuffix(r.Path, "/"), "/")
	for i, part := range parts {
		if name, parameter := strings.CutPrefix(part, ":"); parameter {
			parts[i] = "{" + name + "}"
		}
	}
	return strings.Join(parts, "/")
}

// Config configures New. The zero value of each field is its default.
type Config struct {
	BodyLimit int // bytes; 0: 16 KiB
	// Upload returns the body limit, in bytes, of a request whose body exceeds BodyLimit; 0: BodyLimit applies. It is
	// called before the body is read. Such a body may take uploadTimeout to arrive. nil: BodyLimit applies to all
	// requests.
	Upload func(head *fasthttp.RequestHeader) int
	Checks []Check       // dependencies that /readyz probes
	Drain  time.Duration // how long Serve waits for open requests after its context ends; 0: 20 s
	// Problem translates errors of one API. If it is nil or returns nil, the shared table translates them.
	Problem func(err error) *Problem

	Metrics *Metrics          // nil: not exported
	Tracer  *telemetry.Tracer // nil: no spans
	Log     *slog.Logger      // nil: slog.Default
	Now     func() time.Time  // nil: time.Now
	Jitter  func() float64    // in [0, 1), spreads Retry-After and reconnects; nil: random
}

const (
	defaultBodyLimit = 16 << 10
	defaultDrain     = 20 * time.Second
	// headLimit bounds the request line and headers together. Beyond it the answer is 431.
	headLimit = 16 << 10
	// readTimeout bounds how long a whole request may take to arrive.
	readTimeout = 10 * time.Second
	// uploadTimeout is the readTimeout of a request that Config.Upload permits.
	uploadTimeout = 2 * time.Minute
	// writeTimeout bounds how long a finished response may take to send. Event streams set it again with each Flush.
	writeTimeout = 10 * time.Second
	// idleTimeout exceeds the 60 s for which nginx keeps an idle upstream connection. nginx therefore closes first, and
	// never sends a request into a connection that the server is closing.
	idleTimeout = 75 * time.Second
)

// New returns a Server with the routes /healthz and /readyz.
func New(cfg Config) *Server {
	cfg.BodyLimit = cmp.Or(cfg.BodyLimit, defaultBodyLimit)
	cfg.Drain = cmp.Or(cfg.Drain, defaultDrain)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Jitter == nil {
		cfg.Jitter = rand.Float64
	}
	s := &Server{
		cfg:       cfg,
		unmatched: cfg.Metrics.route("unmatched"),
		malformed: cfg.Metrics.route("malformed"),
		outages:   rate.NewLimiter(rate.Every(5*time.Second), 1),
		sweeps:    rate.NewLimiter(rate.Every(time.Second), 1),
	}
	s.serving, s.drain = context.WithCancel(context.Background())
	s.fiber = fiber.New(fiber.Config{
		DisableStartupMessage:        true,
		DisablePreParseMultipartForm: true,
		StrictRouting:                true,
		CaseSensitive:                true,
		BodyLimit:                    cfg.BodyLimit,
		ReadBufferSize:               headLimit,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		ErrorHandler: func(c *fiber.Ctx, err error) error { // routing errors only: handlers' errors are answered in Handle
			s.refuse(c.Context(), s.unmatched, err)
			return nil
		},
	})
	s.addHealth()
	return s
}

// Log returns the server's logger.
func (s *Server) Log() *slog.Logger { return s.cfg.Log }

// Now returns the current time of the server's clock.
func (s *Server) Now() time.Time { return s.cfg.Now() }

// Routes returns the registered routes.
func (s *Server) Routes() []Route { return s.routes }

// Handle registers a route. GET routes answer HEAD as well. An error of the handler becomes a problem, a panic a 500.
func (s *Server) Handle(method, path string, h fiber.Handler) {
	route := Route{method, path}
	s.routes = append(s.routes, route)
	documented := route.Documented()
	count := s.cfg.Metrics.route(path)
	serve := func(c *fiber.Ctx) error {
		ctx := c.Context()
		span := s.beginSpan(ctx, method, documented)
		defer func() { span.End(ctx.Response.StatusCode()) }()
		defer s.recovered(ctx, count)
		if err := h(c); err != nil {
			s.refuse(ctx, count, err)
			return nil
		}
		count.add(ctx.Response.StatusCode())
		return nil
	}
	s.fiber.Add(method, path, serve)
	if method == fiber.MethodGet {
		s.fiber.Add(fiber.MethodHead, path, serve)
	}
}

// Finish registers the API reference and wraps the routes with the checks that precede routing. Routes cannot be
// added afterwards.
func (s *Server) Finish() {
	s.addReference()
	server, routed := s.fiber.Server(), s.fiber.Handler()
	server.Handler = func(ctx *fasthttp.RequestCtx) {
		defer func() {
			if s.draining() { // also after Serve has returned: an open connection may send its first request then
				ctx.SetConnectionClose()
			}
		}()
		defer s.recovered(ctx, s.unmatched)
		if ambiguousFraming(ctx.Request.Header.RawHeaders()) {
			ctx.SetConnectionClose()
			s.refuse(ctx, s.malformed, errFraming)
			return
		}
		if !slices.Contains(fiber.DefaultMethods, string(ctx.Method())) { // Fiber would answer in plain text
			s.refuse(ctx, s.unmatched, errMethod)
			return
		}
		routed(ctx)
	}
	server.ErrorHandler = func(ctx *fasthttp.RequestCtx, err error) {
		lingerOnClose(ctx.Conn())
		s.refuse(ctx, s.malformed, s.unreadable(&ctx.Request.Header, err))
	}
	server.HeaderReceived = s.received
}

// received returns the limits of a request whose head was read.
func (s *Server) received(head *fasthttp.RequestHeader) (own fasthttp.RequestConfig) {
	const chunked = -1 // of unknown length
	if n := head.ContentLength(); s.cfg.Upload != nil && (n > s.cfg.BodyLimit || n == chunked) {
		if own.MaxRequestBodySize = s.cfg.Upload(head); own.MaxRequestBodySize > 0 {
			own.ReadTimeout = uploadTimeout
		}
	}
	return own
}

// BeginDrain starts the drain: Serving ends, and /readyz answers 503. Serve calls it when its context ends.
func (s *Server) BeginDrain() { s.drain() }

// Serving returns a context that ends when the drain begins. Event streams and waiting requests end with it.
func (s *Server) Serving() context.Context { return s.serving }

// draining reports whether the drain has begun.
func (s *Server) draining() bool { return s.serving.Err() != nil }

// Required returns an error that names the fields of a configuration that have their zero value, or nil. cfg is a
// struct of the package pkg with these fields.
func Required(pkg string, cfg any, fields ...string) error {
	var missing []error
	for _, field := range fields {
		if reflect.ValueOf(cfg).FieldByName(field).IsZero() {
			missing = append(missing, fmt.Errorf("%s: Config.%s is missing", pkg, field))
		}
	}
	return errors.Join(missing...)
}
