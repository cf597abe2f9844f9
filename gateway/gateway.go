package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"sluice/gateway/known"
	"sluice/gateway/limit"
	"sluice/gateway/policy"
	"sluice/internal/token"
)

// Gateway is the edge. Safe for concurrent use; make it with New.
type Gateway struct {
	config      Config
	log         *slog.Logger
	clock       *clock
	elapsed     func() time.Duration
	wall        func() time.Time
	random      func(n int) int
	verifier    *verifier
	table       *limit.Table
	policy      atomic.Pointer[snapshot]
	reloader    *reloader
	metrics     *metrics
	access      *accessLog // may be nil
	crowd       *crowd
	certificate *certificate // may be nil
	balancer    balancer
	sales       *known.Sales
	streams     streams
	timeouts    struct{ wait, other, silence time.Duration }

	exchanges sync.Pool
	draining  chan struct{}
	served    atomic.Bool
}

// New makes a gateway. It reads the policy and tries nothing else: no backend need be there yet. All that is wrong with the configuration is reported
// together; what is wrong with the policy is a policy.Mistakes.
func New(config Config) (*Gateway, error) {
	config.defaults()
	g := &Gateway{config: config, log: config.Logger, clock: newClock(), random: config.Random, table: limit.NewTable(config.Buckets),
		draining: make(chan struct{})}
	if g.elapsed = config.Now; g.elapsed == nil {
		g.elapsed = g.clock.elapsed
	}
	g.wall = time.Now
	g.timeouts.wait, g.timeouts.other, g.timeouts.silence = config.WaitTimeout, config.AnswerTimeout, config.SilenceTimeout
	g.exchanges.New = func() any { return &exchange{gateway: g} }
	var errs []error
	keys, err := token.Open(config.TokenKeys, config.Secret)
	if err != nil {
		errs = append(errs, err)
	} else if private := keys.Set().Private(); len(private) > 0 {
		g.log.Warn("the file of token keys holds private parts, which no edge needs", "keys", private)
	}
	g.verifier = newVerifier(keys, limit.NewNamer())
	if g.metrics, err = newMetrics(config.Registry); err != nil {
		errs = append(errs, fmt.Errorf("gateway: metrics: %w", err))
	}
	g.metrics.room.Set(float64(g.table.Capacity()))
	g.crowd = newCrowd(config.PerClient)
	if g.certificate, err = readCertificate(config.TLSCert, config.TLSKey); err != nil {
		errs = append(errs, err)
	}
	if config.AccessLog != nil {
		g.access = &accessLog{to: config.AccessLog, log: g.log}
	}
	g.streams.counted = func(n int) { g.metrics.streams.Set(float64(n)) }
	switch n := len(config.Upstreams); {
	case n == 0:
		errs = append(errs, errors.New("an upstream is needed"))
	case n > maxUpstreams:
		errs = append(errs, fmt.Errorf("%d upstreams are more than %d", n, maxUpstreams))
	}
	for _, raw := range config.Upstreams {
		u, err := newUpstream(raw, config.DialTimeout, g.clock, g.metrics.upstream)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		u.seconds = g.metrics.seconds.WithLabelValues(u.name)
		for _, f := range []string{"dial", "timeout", "broken", "garbled"} {
			g.metrics.upstream.WithLabelValues(u.name, f)
		}
		g.balancer.upstreams = append(g.balancer.upstreams, u)
	}
	p, err := g.readPolicy()
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	g.policy.Store(newSnapshot(p, nil, g.metrics))
	g.sales = known.New(known.Config{Source: g.holders, Now: g.now, Log: g.log, Fetched: g.metrics.fetched})
	return g, nil
}

func (g *Gateway) readPolicy() (*policy.Policy, error) {
	switch {
	case g.config.PolicyPath != "":
		g.reloader = newReloader(g.config.PolicyPath)
		p, _, err := g.reloader.read()
		return p, err
	case len(g.config.PolicySource) > 0:
		return policy.Parse("policy.lua", g.config.PolicySource)
	}
	return nil, errors.New("a policy is needed")
}

// Run listens on the configured address and serves until ctx is done.
func (g *Gateway) Run(ctx context.Context) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", g.config.Listen)
	if err != nil {
		return fmt.Errorf("gateway: listen: %w", err)
	}
	return g.Serve(ctx, ln)
}

// Serve accepts connections from ln until ctx is done, and then drains: it accepts no more, ends event streams, lets other requests finish
// for DrainTimeout, and closes what is left. It returns nil after a drain in time. Call it once.
func (g *Gateway) Serve(ctx context.Context, ln net.Listener) error {
	if g.served.Swap(true) {
		return errors.New("gateway: Serve was called before")
	}
	guarded := &listener{Listener: ln, clock: g.clock, log: g.log, open: map[*conn]struct{}{}, metrics: g.metrics, refusal: turnedAway(),
		proxied: g.config.ProxyProtocol,
		limits:  connLimits{most: g.config.MaxConns, head: g.config.RequestTimeout, idle: g.config.IdleTimeout, write: g.config.WriteTimeout}}
	if g.certificate != nil {
		guarded.tls = g.certificate.config()
	}
	server := &fasthttp.Server{
		Handler: g.Handler, HeaderReceived: received, ErrorHandler: g.answerUnreadable, Logger: quiet{g.log}, SecureErrorLogMessage: true,
		ReadBufferSize: maxHead + 512, MaxRequestBodySize: MaxBody,
		Concurrency:           2 * g.config.MaxConns, // the listener has the say; connections that linger are no longer among those it counts
		NoDefaultServerHeader: true, NoDefaultContentType: true, DisablePreParseMultipartForm: true, CloseOnShutdown: true,
	}
	loops, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	g.clock.tick()
	running.Go(func() { g.tick(loops) })
	running.Go(func() { g.housekeep(loops) })
	if g.config.Signals {
		running.Go(func() { g.listen(loops) })
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(guarded) }()
	g.log.Info("the edge listens", "address", ln.Addr().String())

	var err error
	select {
	case err = <-failed: // nobody stopped it
		if err == nil {
			err = net.ErrClosed
		}
		err = fmt.Errorf("gateway: serve: %w", err)
		_ = ln.Close()
	case <-ctx.Done():
		err = g.drain(ctx, server, guarded)
	}
	stop()
	running.Wait()
	g.sales.Close()
	for _, u := range g.balancer.upstreams {
		u.close()
	}
	g.access.flush()
	return err
}

// drain ends in this order: no new connections, then what would never end by itself, then the requests under way, then what is left.
func (g *Gateway) drain(ctx context.Context, server *fasthttp.Server, guarded *listener) error {
	g.log.Info("the edge drains")
	close(g.draining)
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.config.DrainTimeout)
	defer cancel()
	g.streams.endAll()
	err := server.ShutdownWithContext(deadline)
	guarded.awaitClosed(deadline)
	if left := guarded.closeAll(); left > 0 {
		return fmt.Errorf("gateway: drain: %d connections were cut off after %v", left, g.config.DrainTimeout)
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("gateway: drain: %w", err)
	}
	return nil
}

func (g *Gateway) tick(ctx context.Context) {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			g.clock.tick()
		}
	}
}

const housekeepEvery = time.Second

func (g *Gateway) housekeep(ctx context.Context) {
	t := time.NewTicker(housekeepEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			g.runOnce()
		}
	}
}

// runOnce does what is due once a second: a changed policy and changed keys are taken over, the log written, and buckets and connections that are of no
// more use dropped.
func (g *Gateway) runOnce() {
	g.reload()
	g.reloadKeys()
	g.renew()
	g.access.flush()
	g.metrics.buckets.Set(float64(g.table.Sweep(g.instant())))
	g.sales.Sweep(g.now())
	g.metrics.holders.Set(float64(g.sales.Sums()))
	for _, u := range g.balancer.upstreams {
		u.prune()
	}
}

// now is the time in milliseconds, by the clock of the limits.
func (g *Gateway) now() int64 { return g.elapsed().Milliseconds() }

// instant is the same in the limits' own unit.
func (g *Gateway) instant() limit.Instant { return limit.Instant(g.elapsed().Microseconds()) }

// turnedAway is the whole answer to a connection for which there is no room.
func turnedAway() []byte {
	var r fasthttp.Response
	ctx := &fasthttp.RequestCtx{}
	(&Gateway{}).answerUnavailable(ctx)
	ctx.Response.CopyTo(&r)
	r.SetConnectionClose()
	var b writer
	_, _ = r.WriteTo(&b)
	return b
}

type writer []byte

func (w *writer) Write(p []byte) (int, error) {
	*w = append(*w, p...)
	return len(p), nil
}

var _ io.Writer = (*writer)(nil)

// quiet keeps fasthttp's words about clients' connections out of the way.
type quiet struct{ log *slog.Logger }

func (q quiet) Printf(format string, args ...any) {
	if q.log.Enabled(context.Background(), slog.LevelDebug) {
		q.log.Debug(fmt.Sprintf(format, args...))
	}
}
