package gateway

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is what a Gateway is made of. Upstreams, one of the policies, and Secret, TokenKeys or both are needed; everything else has a default.
type Config struct {
	Listen    string   // host:port for Run
	Upstreams []string // backends: host:port or http://host:port, at most 64

	PolicyPath   string // the policy file; it is read again when it changes
	PolicySource []byte // the policy itself, where there is no file

	Secret    string // HS256 tokens without a kid are signed with it; 32 bytes at least
	TokenKeys string // a JWK Set file of the keys that other tokens are signed with; it is read again when it changes

	Logger    *slog.Logger          // default: none
	AccessLog io.Writer             // gets one JSON object a request, as the nginx edge writes it, about once a second; default: none
	Registry  prometheus.Registerer // default: none

	PerClient     int    // requests of one client that may be under way at once; default DefaultPerClient
	ProxyProtocol bool   // every connection begins with a PROXY header, believed where it comes from the policy's trusted_proxies
	TLSCert       string // PEM file of a certificate and its chain, and
	TLSKey        string // of its key: connections are HTTP/1.1 over TLS. Read again when they change

	Buckets  int // live buckets of all rules together; default limit.DefaultCapacity
	MaxConns int // client connections, some 20 KB each; default 8192

	RequestTimeout time.Duration // for a client to send a whole request; default 5 s
	IdleTimeout    time.Duration // of a client's connection between requests; default 30 s
	WriteTimeout   time.Duration // for a client to take a part of an answer; default 10 s
	DialTimeout    time.Duration // to reach a backend; default 1 s
	AnswerTimeout  time.Duration // for a backend to answer anything else; default 5 s
	WaitTimeout    time.Duration // for a backend to tell of an order, which it may be asked to wait for; default 40 s
	SilenceTimeout time.Duration // between two parts of a streamed answer; default 60 s, four times the backend's heartbeat
	DrainTimeout   time.Duration // for requests to finish after Serve was told to stop; default 15 s

	Signals bool // listen to a backend for changes of sales, so that what is known of them is forgotten at once; without, it is within a second

	Random func(n int) int      // a number from 0 to n-1, for the jitter of Retry-After; default math/rand/v2
	Now    func() time.Duration // since whenever, and never backwards, for the limits; default the machine's monotonic clock
}

func (c *Config) defaults() {
	for d, otherwise := range map[*time.Duration]time.Duration{
		&c.RequestTimeout: 5 * time.Second, &c.IdleTimeout: 30 * time.Second, &c.WriteTimeout: 10 * time.Second, &c.DialTimeout: time.Second,
		&c.AnswerTimeout: 5 * time.Second, &c.WaitTimeout: 40 * time.Second, &c.SilenceTimeout: time.Minute, &c.DrainTimeout: 15 * time.Second,
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

// DefaultPerClient is how many requests of one client may be under way at once, as at the nginx edge.
const DefaultPerClient = 1000

// MaxBody is the largest request body that passes, in bytes.
const MaxBody = 16 << 10
