// Package proxy transfers HTTP requests between clients and backends. It validates request heads strictly, filters
// headers in both directions, distributes requests over the backends, retries on another backend where that is safe,
// and streams long responses.
//
// A request passes through these files:
//
//	serve.go      the server runs until it is drained
//	listener.go   connections are accepted up to a limit
//	conn.go       timeouts; a head reaches fasthttp only when it is complete and valid
//	linger.go     a connection is closed, or its client closes it
//	validator.go  a head that parsers may interpret differently is rejected
//	headers.go    the headers that pass to a backend
//	request.go    the head that the backend receives
//	balancer.go   which backend is tried, and which one after a failure
//	upstream.go   whether a backend is considered up; pool.go has its idle connections
//	exchange.go   one attempt over one connection; failure.go has the reasons why it can fail
//	response.go   the headers that pass to the client
//	stream.go     responses that are passed on as they arrive
//
// It does not decide whether a request is admitted, and writes no error responses: its caller, package gateway, does.
package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"sluice/internal/listen"
	"sluice/internal/unixsocket"
)

// Config configures a Proxy. All fields are required unless marked optional.
type Config struct {
	Upstreams []string // host:port or unix:/path; 1 to 64

	Handler  fasthttp.RequestHandler                   // answers a request, usually with Forward
	Rejected func(ctx *fasthttp.RequestCtx, err error) // answers a request that cannot be parsed
	Overload []byte                                    // HTTP response to a connection beyond MaxConns
	Logger   *slog.Logger
	Registry prometheus.Registerer // optional
	TLS      *tls.Config           // of client connections; nil means plain HTTP

	ProxyProtocol bool // client connections must begin with a PROXY header
	MaxBody       int  // bytes of a request body
	Limits

	Dial func(ctx context.Context, address string) (net.Conn, error) // optional; default TCP or Unix with DialTimeout
}

// Limits of connections. Fields that are not positive have defaults.
type Limits struct {
	MaxConns int // open client connections, about 20 KB each; default 8192, or what the limit of open files permits

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
	l.MaxConns = cmp.Or(max(l.MaxConns, 0), connLimit(listen.OpenFiles()))
}

const usualConns = 8 << 10

// connLimit returns the default of MaxConns for a limit of open files, 0 if it is unknown. Each request takes two: that
// of the client and that of the backend. Without such a limit, idle clients could take all files: no other client could
// connect, and no backend could be reached.
func connLimit(files int) int {
	const others = 64 // files of the process itself
	if files == 0 {
		return usualConns
	}
	return max(1, min(usualConns, (files-others)/2))
}

// Proxy forwards requests to backends. Create it with New. Safe for concurrent use.
type Proxy struct {
	config    Config
	clock     *clock
	upstreams []*upstream
	turn      atomic.Uint32 // selects backends round-robin
	metrics   *metrics

	// draining ends when event streams must end: they may last for hours.
	draining   context.Context
	endStreams context.CancelFunc
}

const maxUpstreams = 64

// New returns a proxy for the given backends. It does not connect to them.
func New(config Config) (*Proxy, error) {
	if n := len(config.Upstreams); n == 0 || n > maxUpstreams {
		return nil, fmt.Errorf("--upstream: %d backends; want 1 to %d", n, maxUpstreams)
	}
	isDefault := config.MaxConns <= 0
	config.setDefaults()
	if isDefault && config.MaxConns < usualConns {
		config.Logger.Info("fewer clients than usual can be connected: raise the limit of open files (ulimit -n)",
			"connections", config.MaxConns)
	}
	p := &Proxy{config: config, clock: newClock(), metrics: newMetrics(config.Registry)}
	p.draining, p.endStreams = context.WithCancel(context.Background())
	dial := config.Dial
	if dial == nil {
		dialer := &net.Dialer{Timeout: config.DialTimeout}
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			network, to := unixsocket.Network(address)
			return dialer.DialContext(ctx, network, to)
		}
	}
	for _, address := range config.Upstreams {
		p.upstreams = append(p.upstreams, newUpstream(address, dial, p.clock, p.metrics))
	}
	return p, nil
}
