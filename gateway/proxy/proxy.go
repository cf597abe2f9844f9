// Package proxy transfers HTTP requests between clients and backends. It validates request heads strictly, filters
// headers in both directions, distributes requests over the backends, retries on another backend where that is safe,
// and streams long responses.
//
// A request passes through these files:
//
//	listener.go   connections are accepted up to a limit
//	conn.go       timeouts; a head reaches fasthttp only when it is complete and valid
//	validator.go  a head that parsers may interpret differently is rejected
//	headers.go    the headers that pass to a backend
//	request.go    the head that the backend receives
//	balancer.go   which backend is tried, and which one after a failure
//	upstream.go   connection pool and health of one backend
//	exchange.go   one attempt over one connection; the headers that pass to the client
//	stream.go     responses that are passed on as they arrive
//
// It does not decide whether a request is admitted, and writes no error responses: its caller, package gateway, does.
package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/valyala/fasthttp"

	"sluice/gateway/internal/ascii"
	"sluice/internal/loop"
	"sluice/internal/plural"
	"sluice/internal/unixsocket"
)

// Config configures a Proxy. All fields are required unless marked optional.
type Config struct {
	Upstreams []string // host:port, http://host:port or unix:/path; 1 to 64

	Handler  fasthttp.RequestHandler                   // answers a request, usually with Forward
	Rejected func(ctx *fasthttp.RequestCtx, err error) // answers a request that cannot be parsed
	Overload []byte                                    // HTTP response to a connection beyond MaxConns
	Logger   *slog.Logger
	Registry prometheus.Registerer // optional
	TLS      *tls.Config           // of client connections; nil means plain HTTP

	ProxyProtocol bool // client connections must begin with a PROXY header
	MaxBody       int  // bytes of a request body
	Limits

	Now  func() time.Duration                                        // optional; clock of Request.SentAt, default Elapsed
	Dial func(ctx context.Context, address string) (net.Conn, error) // optional; default TCP or Unix with DialTimeout
}

// Limits of connections. Fields that are not positive have defaults.
type Limits struct {
	MaxConns int // open client connections, about 20 KB each; default 8192

	RequestTimeout time.Duration // for a client to send a complete request; default 5 s
	IdleTimeout    time.Duration // of a client connection between requests; default 30 s
	WriteTimeout   time.Duration // for a client to accept a part of a response; default 10 s
	DialTimeout    time.Duration // to connect to a backend; default 1 s
	SilenceTimeout time.Duration // between two parts of a streamed response; default 60 s, four heartbeats of a backend
	DrainTimeout   time.Duration // for requests to finish after the context of Serve has ended; default 15 s
}

func (l *Limits) setDefaults() {
	for d, otherwise := range map[*time.Duration]time.Duration{
		&l.RequestTimeout: 5 * time.Second, &l.IdleTimeout: 30 * time.Second, &l.WriteTimeout: 10 * time.Second,
		&l.DialTimeout: time.Second, &l.SilenceTimeout: time.Minute, &l.DrainTimeout: 15 * time.Second,
	} {
		if *d <= 0 {
			*d = otherwise
		}
	}
	l.MaxConns = cmp.Or(max(l.MaxConns, 0), 8<<10)
}

// Proxy forwards requests to backends. Create it with New. Safe for concurrent use.
type Proxy struct {
	config   Config
	clock    *clock
	balancer balancer
	streams  streams
	metrics  *metrics
}

// New returns a proxy for the given backends. It does not connect to them. All configuration errors are reported
// together.
func New(config Config) (*Proxy, error) {
	config.setDefaults()
	p := &Proxy{config: config, clock: newClock(), metrics: newMetrics(config.Registry)}
	var errs []error
	p.streams.gauge = p.metrics.streams
	switch n := len(config.Upstreams); {
	case n == 0:
		errs = append(errs, errors.New("no upstream: name at least one backend"))
	case n > maxUpstreams:
		errs = append(errs, fmt.Errorf("%d upstreams: at most %d are supported", n, maxUpstreams))
	}
	dial := config.Dial
	if dial == nil {
		dialer := &net.Dialer{Timeout: config.DialTimeout}
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			network, to := unixsocket.Network(address)
			return dialer.DialContext(ctx, network, to)
		}
	}
	for _, raw := range config.Upstreams {
		address, err := parseUpstream(raw)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.balancer.upstreams = append(p.balancer.upstreams, newUpstream(address, dial, p.clock, p.metrics))
	}
	return p, errors.Join(errs...)
}

// Elapsed returns the monotonic time since New.
func (p *Proxy) Elapsed() time.Duration { return p.clock.elapsed() }

// Serve accepts connections from ln until ctx ends, and then drains: it accepts no more connections, ends event
// streams, waits up to DrainTimeout for other requests, and closes what remains. It returns nil if all requests
// finished in time. Call it once.
func (p *Proxy) Serve(ctx context.Context, ln net.Listener) error {
	c := &p.config
	l := &listener{Listener: ln, config: c, clock: p.clock, metrics: p.metrics, open: map[*Conn]struct{}{}}
	server := &fasthttp.Server{
		Handler: c.Handler, ErrorHandler: c.Rejected, HeaderReceived: c.headerReceived,
		Logger: debugLogger{c.Logger}, SecureErrorLogMessage: true,
		ReadBufferSize: maxHead + 512, MaxRequestBodySize: c.MaxBody,
		Concurrency:           2 * c.MaxConns, // the listener enforces the limit, and does not count connections that linger
		NoDefaultServerHeader: true, NoDefaultContentType: true, DisablePreParseMultipartForm: true, CloseOnShutdown: true,
	}
	p.clock.tick()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { p.maintain(background) })
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	c.Logger.Info("edge listening", "address", ln.Addr().String())

	var err error
	select {
	case err = <-failed:
		if err == nil {
			err = net.ErrClosed
		}
		err = fmt.Errorf("serve: %w", err)
		_ = ln.Close()
	case <-ctx.Done():
		err = p.drain(ctx, server, l)
	}
	stop()
	running.Wait()
	for _, u := range p.balancer.upstreams {
		u.close()
	}
	return err
}

// drain ends event streams first: they do not end otherwise.
func (p *Proxy) drain(ctx context.Context, server *fasthttp.Server, l *listener) error {
	p.config.Logger.Info("edge draining")
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.config.DrainTimeout)
	defer cancel()
	p.streams.endAll()
	err := server.ShutdownWithContext(deadline)
	l.awaitClosed(deadline)
	if left := l.closeAll(); left > 0 {
		return fmt.Errorf("drain: cut off after %v: %s", p.config.DrainTimeout, plural.Count(left, "connection"))
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("drain: %w", err)
	}
	return nil
}

const pruneEvery = time.Second

// maintain updates the coarse clock and closes idle backend connections until ctx ends. It sleeps while nothing reads
// the clock and no backend connection is idle.
func (p *Proxy) maintain(ctx context.Context) {
	for ctx.Err() == nil {
		p.maintainBusy(ctx)
		select {
		case <-ctx.Done():
		case <-p.clock.wake:
		}
	}
}

// maintainBusy returns when the clock has not been read for pruneEvery and no backend connection is idle.
func (p *Proxy) maintainBusy(ctx context.Context) {
	p.clock.resume()
	tick, prune := time.NewTicker(tickEvery), time.NewTicker(pruneEvery)
	defer tick.Stop()
	defer prune.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.clock.tick()
		case <-prune.C:
			idle := 0
			for _, u := range p.balancer.upstreams {
				idle += u.prune()
			}
			if !p.clock.read.Swap(false) && idle == 0 {
				p.clock.stopped.Store(true)
				return
			}
		}
	}
}

// headerReceived corrects fasthttp's interpretation of a head. Headers.connection decides whether a connection is
// closed, as nginx does. HTTP/1.0 clients get no interim response, the value of Expect may have any case, and a
// client gets no 100 Continue for a body that is too large.
func (c *Config) headerReceived(h *fasthttp.RequestHeader) (none fasthttp.RequestConfig) {
	h.ResetConnectionClose()
	switch expected := h.Peek(fasthttp.HeaderExpect); {
	case len(expected) == 0:
	case !h.IsHTTP11(), h.ContentLength() > c.MaxBody:
		h.Del(fasthttp.HeaderExpect)
	case ascii.EqualFold(expected, "100-continue"):
		h.Set(fasthttp.HeaderExpect, "100-continue")
	}
	return none
}

// debugLogger logs fasthttp's messages about client connections at debug level.
type debugLogger struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (d debugLogger) Printf(format string, args ...any) {
	if d.log.Enabled(context.Background(), slog.LevelDebug) {
		d.log.Debug(fmt.Sprintf(format, args...))
	}
}

// clock measures milliseconds since its start, and does not jump when the system time is set.
type clock struct {
	start   time.Time
	ticks   atomic.Int64
	read    atomic.Bool // coarse was called since maintain has reset it
	stopped atomic.Bool // there are no ticks; coarse reads the time and wakes maintain
	wake    loop.Wake
}

const tickEvery = 100 * time.Millisecond

func newClock() *clock { return &clock{start: time.Now(), wake: loop.NewWake()} }

func (c *clock) now() int64 { return c.elapsed().Milliseconds() }

func (c *clock) elapsed() time.Duration { return time.Since(c.start) }

// tick updates the coarse time.
func (c *clock) tick() { c.ticks.Store(c.now()) }

// resume ends the time without ticks.
func (c *clock) resume() {
	c.tick()
	c.stopped.Store(false)
}

// coarse returns the time of the last tick. It is up to tickEvery late, and much cheaper than now. Without ticks it
// returns the exact time and causes them to resume.
func (c *clock) coarse() int64 {
	if c.stopped.Load() {
		c.wake.Up()
		return c.now()
	}
	if !c.read.Load() {
		c.read.Store(true)
	}
	return c.ticks.Load()
}

func (c *clock) at(ms int64) time.Time { return c.start.Add(time.Duration(ms) * time.Millisecond) }

// metrics of connections to clients and backends.
type metrics struct {
	connections prometheus.Gauge
	refused     prometheus.Counter
	streams     prometheus.Gauge
	failures    *prometheus.CounterVec   // by upstream and failure
	seconds     *prometheus.HistogramVec // by upstream
}

// newMetrics creates the metrics and registers them, unless registry is nil.
func newMetrics(registry prometheus.Registerer) *metrics {
	register := promauto.With(registry)
	return &metrics{
		connections: register.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_edge_connections", Help: "Open client connections."}),
		refused: register.NewCounter(prometheus.CounterOpts{
			Name: "sluice_edge_connections_refused_total", Help: "Connections refused because too many were open."}),
		streams: register.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_edge_event_streams", Help: "Open event streams."}),
		failures: register.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_edge_upstream_failures_total", Help: "Failed attempts to reach a backend, by failure."},
			[]string{"upstream", "failure"}),
		seconds: register.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_edge_upstream_seconds", Help: "Time until a backend began to respond."}, []string{"upstream"}),
	}
}
