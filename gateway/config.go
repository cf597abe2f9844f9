package gateway

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config configures a Gateway. Upstreams, a policy, and Secret or TokenKeys (or both) are required; all other fields
// have defaults.
type Config struct {
	Listen    string   // host:port for Run
	Upstreams []string // backends: host:port or http://host:port, at most 64

	PolicyPath   string // policy file, reloaded when it changes
	PolicySource []byte // the policy itself, if there is no file

	Secret    string // HS256 key of tokens without a key id; at least 32 bytes
	TokenKeys string // JWK Set file with the keys of other tokens, reloaded when it changes

	Logger    *slog.Logger          // default: no log
	AccessLog io.Writer             // receives one JSON object a request, in the format of the nginx edge; default: no log
	Registry  prometheus.Registerer // default: no metrics

	PerClient     int    // concurrent requests of one client; default DefaultPerClient
	ProxyProtocol bool   // connections begin with a PROXY header, which is used if the peer is in trusted_proxies
	TLSCert       string // PEM file of a certificate chain, for HTTP/1.1 over TLS; reloaded when it changes
	TLSKey        string // PEM file of its key

	Buckets  int // buckets of all rules; default limit.DefaultCapacity
	MaxConns int // client connections, about 20 KB each; default 8192

	RequestTimeout time.Duration // for a client to send a complete request; default 5 s
	IdleTimeout    time.Duration // of a client connection between requests; default 30 s
	WriteTimeout   time.Duration // for a client to accept a part of a response; default 10 s
	DialTimeout    time.Duration // to connect to a backend; default 1 s
	AnswerTimeout  time.Duration // for a backend to respond; default 5 s
	WaitTimeout    time.Duration // the same for the status of an order, which may wait for the order; default 40 s
	SilenceTimeout time.Duration // between two parts of a streamed response; default 60 s, four heartbeats of a backend
	DrainTimeout   time.Duration // for requests to finish after the context of Serve has ended; default 15 s

	SaleNotifications bool // invalidate cached refusals on notifications from a backend, instead of within a second

	Random func(n int) int      // a number from 0 to n-1, for the jitter of Retry-After; default math/rand/v2
	Now    func() time.Duration // monotonic time of the limits and the refusal cache; default the system's

	dial func(ctx context.Context, address string) (net.Conn, error) // for benchmarks
}

func (c *Config) setDefaults() {
	for d, otherwise := range map[*time.Duration]time.Duration{
		&c.RequestTimeout: 5 * time.Second, &c.IdleTimeout: 30 * time.Second, &c.WriteTimeout: 10 * time.Second,
		&c.DialTimeout: time.Second, &c.AnswerTimeout: 5 * time.Second, &c.WaitTimeout: 40 * time.Second,
		&c.SilenceTimeout: time.Minute, &c.DrainTimeout: 15 * time.Second,
	} {
		if *d <= 0 {
			*d = otherwise
		}
	}
	if c.PerClient <= 0 || c.PerClient > 65535 {
		c.PerClient = DefaultPerClient
	}
	if c.MaxConns <= 0 {
		c.MaxConns = 8 << 10
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Random == nil {
		c.Random = rand.IntN
	}
}

// DefaultPerClient is the default limit of concurrent requests of one client, as at the nginx edge.
const DefaultPerClient = 1000

// maxBody is the largest request body, in bytes.
const maxBody = 16 << 10
