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
	"sluice/internal/edgeconfig"
	"sluice/internal/edgetrace"
	"sluice/internal/fleetlimit"
)

// Config configures a Gateway. A policy and what Shared requires are required; all other fields have defaults.
type Config struct {
	edgeconfig.Shared // at most 64 Upstreams; files are reloaded when they change; for a URL of TokenKeys see AwaitKeys

	PolicyPath   string // policy file, reloaded when it changes
	PolicySource []byte // the policy itself, if there is no file

	Logger    *slog.Logger          // default: no log
	AccessLog io.Writer             // receives one JSON object a request, in the format of the nginx edge; default: no log
	Registry  prometheus.Registerer // not shared with another gateway; default: no metrics

	Spans *edgetrace.Recorder // exports spans of sampled requests; default: no spans

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
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Random == nil {
		c.Random = rand.IntN
	}
	if c.Now == nil {
		start := time.Now()
		c.Now = func() time.Duration { return time.Since(start) }
	}
}

const maxBody = 16 << 10
