package gateway

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/gateway/proxy"
	"sluice/internal/edgetrace"
	"sluice/internal/fleetlimit"
	"sluice/internal/token"
)

// Config configures a Gateway. Upstreams, a policy, and Secret or TokenKeys (or both) are required; all other fields
// have defaults.
type Config struct {
	Upstreams []string // backends: host:port or http://host:port, at most 64

	PolicyPath   string // policy file, reloaded when it changes
	PolicySource []byte // the policy itself, if there is no file

	Secret    string // HS256 key of tokens without a key id; at least 32 bytes
	TokenKeys string // JWK Set with the keys of other tokens: a file, reloaded when it changes, or a URL, see AwaitKeys

	token.Expect // issuer and audience of tokens

	Logger    *slog.Logger          // default: no log
	AccessLog io.Writer             // receives one JSON object a request, in the format of the nginx edge; default: no log
	Registry  prometheus.Registerer // of one gateway; default: no metrics

	Spans *edgetrace.Recorder // exports spans of sampled requests; default: no spans

	// CORSOrigins are the origins of sites whose pages may call the API, such as https://shop.example; default: none.
	CORSOrigins []string

	PerClient     int    // concurrent requests of one client; default DefaultPerClient
	ProxyProtocol bool   // connections begin with a PROXY header, which is used if the peer is in trusted_proxies
	TLSCert       string // PEM file of a certificate chain, for HTTP/1.1 over TLS; reloaded when it changes
	TLSKey        string // PEM file of its key

	Fleet *fleetlimit.Client // leases for rules with scope = "fleet"; default: a policy with such a rule is invalid

	Buckets int // buckets of all rules; default limit.DefaultCapacity

	proxy.Limits
	AnswerTimeout time.Duration // for a backend to respond; default 5 s
	WaitTimeout   time.Duration // the same for the status of an order, which may wait for the order; default 40 s

	SaleNotifications bool // invalidate cached refusals on notifications from a backend, instead of within a second

	Random func(n int) int      // a number from 0 to n-1, for the jitter of Retry-After; default math/rand/v2
	Now    func() time.Duration // monotonic time of the limits and the refusal cache; default the system's

	dial func(ctx context.Context, address string) (net.Conn, error) // for benchmarks
}

func (c *Config) setDefaults() {
	c.AnswerTimeout = cmp.Or(max(c.AnswerTimeout, 0), 5*time.Second)
	c.WaitTimeout = cmp.Or(max(c.WaitTimeout, 0), 40*time.Second)
	if c.PerClient <= 0 || c.PerClient > 65535 {
		c.PerClient = DefaultPerClient
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Random == nil {
		c.Random = rand.IntN
	}
	if c.Now == nil {
		start := time.Now()
		c.Now = func() time.Duration { return time.Since(start) }
	}
}

// DefaultPerClient is the default limit of concurrent requests of one client, as at the nginx edge.
const DefaultPerClient = 1000

// maxBody is the largest request body, in bytes.
const maxBody = 16 << 10
