// Package gateway is the Go edge: a rate-limiting HTTP proxy in front of the backends. It reads the same policy as
// the nginx edge, makes the same decisions, and writes the same responses.
//
// Gateway.handle in handle.go shows the path of a request; each step has a file of its own:
//
//	proxy/          the request head is validated, and malformed ones are rejected
//	path.go         the path is decoded for matching; ambiguous paths are rejected
//	address.go      the client address, from the peer or a trusted proxy
//	cors.go         preflights of browsers are answered
//	concurrency.go  the requests in progress of one client are limited
//	cache.go        a sale-wide refusal is answered from memory
//	admit.go        rate limits by address, token verification, rate limits by buyer
//	fleet.go        rate limits of all edges together
//	forward.go      the request is sent to a backend
//	responses.go    the responses of the edge itself
//	spans.go        spans of sampled requests, once they are complete
//
// The package does not import backend packages: code that both need is in internal.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
	"sluice/gateway/proxy"
	"sluice/gateway/refusalcache"
	"sluice/internal/fleetlimit"
	"sluice/internal/loop"
	"sluice/internal/token"
)

// Gateway is the Go edge. Create it with New. Safe for concurrent use.
type Gateway struct {
	config      Config
	log         *slog.Logger
	policy      atomic.Pointer[snapshot]
	reloader    *reloader
	certificate *certificate // may be nil
	metrics     *metrics
	access      *accessLog // may be nil

	concurrency *concurrencyLimiter
	keys        *token.Keys
	buyers      limit.Namer
	table       *limit.Table
	fleet       *fleetlimit.Limiter // nil: no rule has the scope of the fleet
	refusals    *refusalcache.Cache
	proxy       *proxy.Proxy

	maintenance sync.Mutex // held by runOnce
	exchanges   sync.Pool
	draining    <-chan struct{}
	served      atomic.Bool
}

// New returns a gateway. It reads the policy, the file of token keys and the certificate, and does not connect to
// backends or fetch keys. All configuration errors are reported together; errors in the policy are policy.Findings.
func New(config Config) (*Gateway, error) {
	config.setDefaults()
	var errs [4]error
	errs[0] = errors.Join(config.Check()...)
	g := &Gateway{config: config, log: config.Logger, table: limit.NewTable(config.Buckets),
		buyers: limit.NewNamer(), concurrency: newConcurrencyLimiter(config.PerClient)}
	g.exchanges.New = func() any { return &exchange{} }
	if config.AccessLog != nil {
		g.access = &accessLog{to: config.AccessLog, log: g.log}
	}
	var p *policy.Policy
	registry := prometheus.NewRegistry()
	// Tokens are cached, because in a flood the same buyers send many requests.
	keyOptions := token.Options{Expect: config.Expect, Cache: cachedTokens}
	g.keys, errs[1] = token.Open(config.TokenKeys, config.Secret, keyOptions)
	g.certificate, errs[2] = readCertificate(config.TLSCert, config.TLSKey)
	p, errs[3] = g.readPolicy()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	var err error
	if g.proxy, err = g.newProxy(registry); err != nil {
		return nil, err
	}
	g.metrics = newMetrics(registry)
	if config.Registry != nil {
		if err := config.Registry.Register(registry); err != nil {
			return nil, fmt.Errorf("gateway: metrics: give each gateway a registry of its own: %w", err)
		}
	}
	if config.Fleet != nil {
		g.fleet = fleetlimit.NewLimiter(fleetlimit.LimiterConfig{Client: config.Fleet, Logger: g.log,
			OnLease: func(r fleetlimit.Result) { g.metrics.leases.WithLabelValues(string(r)).Inc() }})
	}
	g.metrics.capacity.Set(float64(g.table.Capacity()))
	g.policy.Store(newSnapshot(p, nil, g.metrics))
	g.refusals = refusalcache.New(refusalcache.Config{Source: g.fetchBypassList, Now: g.now, Logger: g.log,
		OnFetch: g.metrics.listFetched})
	return g, nil
}

func (g *Gateway) newProxy(registry prometheus.Registerer) (*proxy.Proxy, error) {
	c := &g.config
	config := proxy.Config{
		Upstreams: c.Upstreams, Handler: g.Handler, Rejected: g.respondUnreadable, Overload: overloadResponse(),
		Logger: c.Logger, Registry: registry, ProxyProtocol: c.ProxyProtocol,
		MaxBody: maxBody, Limits: c.Limits,
		Dial: c.dial,
	}
	if g.certificate != nil {
		config.TLS = g.certificate.config()
	}
	return proxy.New(config)
}

func (g *Gateway) readPolicy() (*policy.Policy, error) {
	c := &g.config
	switch {
	case c.PolicyPath != "":
		g.reloader = &reloader{path: c.PolicyPath, fleet: c.Fleet != nil}
		p, _, err := g.reloader.read()
		return p, err
	case len(c.PolicySource) > 0:
		return parsePolicy("policy.lua", c.PolicySource, c.Fleet != nil)
	}
	return nil, errors.New("no policy: name a policy file")
}

const cachedTokens = limit.DefaultCapacity // about 50 MB when full

// AwaitKeys fetches the first token keys, if they are at a URL, and logs warnings about keys; see token.Keys.Await.
// Call it before Serve.
func (g *Gateway) AwaitKeys(ctx context.Context) error { return g.keys.Await(ctx, g.log) }

// KeyNames returns the names of the token keys in use, "ALG KID". Call it after AwaitKeys.
func (g *Gateway) KeyNames() []string { return g.keys.Set().Names() }

// Serve accepts connections from ln until ctx ends, and then drains: it accepts no more connections, ends event
// streams, waits up to DrainTimeout for other requests, and closes what remains. It returns nil if all requests
// finished in time. Call it once.
func (g *Gateway) Serve(ctx context.Context, ln net.Listener) error {
	if g.served.Swap(true) {
		return errors.New("gateway: Serve was called twice")
	}
	g.draining = ctx.Done()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() {
		for range loop.Ticks(background, maintainEvery) {
			g.runOnce()
		}
	})
	if g.fleet != nil {
		running.Go(func() {
			for range loop.Ticks(background, maintainEvery) {
				g.fleet.Sweep(background)
			}
		})
	}
	running.Go(func() { g.keys.Follow(background, g.keysRead) })
	if g.config.SaleNotifications {
		running.Go(func() { g.followNotifications(background) })
	}
	err := g.proxy.Serve(ctx, ln)
	stop()
	running.Wait()
	if g.fleet != nil {
		g.fleet.Close()
	}
	g.refusals.Close()
	g.access.flush()
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	return nil
}

const maintainEvery = time.Second

// runOnce reloads changed files, writes the access log, and drops expired buckets, cache entries and connections. It is
// safe for concurrent use.
func (g *Gateway) runOnce() {
	g.maintenance.Lock()
	defer g.maintenance.Unlock()
	g.reloadPolicy()
	g.reloadCertificate()
	g.access.flush()
	g.metrics.buckets.Set(float64(g.table.Evict(g.instant())))
	g.refusals.Evict(g.now())
	g.proxy.Prune()
	g.metrics.bypassEntries.Set(float64(g.refusals.Entries()))
}

// now returns the time in milliseconds of the clock of the limits.
func (g *Gateway) now() int64 { return g.config.Now().Milliseconds() }

// instant returns the same time in microseconds, the unit of package limit.
func (g *Gateway) instant() limit.Instant { return limit.Instant(g.config.Now().Microseconds()) }
