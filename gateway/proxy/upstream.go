package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/internal/unixsocket"
)

// upstream is one backend: its idle connections and its health.
type upstream struct {
	address  string // host:port or unix:/path
	dial     func(ctx context.Context, address string) (net.Conn, error)
	clock    *clock
	failures map[error]prometheus.Counter
	seconds  prometheus.Observer // of successful attempts

	mu     sync.Mutex
	idle   []*backendConn // ordered by last use, the most recent last
	closed bool

	strikes atomic.Int32 // consecutive failures
	suspect atomic.Bool  // considered down
	retryAt atomic.Int64 // in ms of the clock; a suspect is not tried before
	probing atomic.Int64 // in ms of the clock; until then, one request tests a suspect alone
}

// backendConn is a connection to a backend. It serves one request at a time.
type backendConn struct {
	net.Conn
	reader *bufio.Reader
	since  int64 // when it became idle, in ms of the clock
	until  int64 // the current deadline, in ms of the clock; 0 if unknown
}

const (
	suspectFor = 2 * time.Second  // how long a backend that is considered down is not tried
	maxStrikes = 3                // consecutive failures after which a backend is considered down
	idleFor    = 20 * time.Second // shorter than the keep-alive timeout of backends
	readerSize = 8 << 10          // bytes; the largest head of a response
	maxIdle    = 512              // idle connections of a backend
)

// parseUpstream returns the address of "host:port" or "http://host:port", and "unix:/path" unchanged.
func parseUpstream(raw string) (address string, err error) {
	if unixsocket.IsAddress(raw) {
		if _, err := unixsocket.Parse(raw); err != nil {
			return "", fmt.Errorf("upstream %q: %w", raw, err)
		}
		return raw, nil
	}
	address = raw
	if strings.Contains(raw, "://") {
		u, err := url.Parse(raw)
		switch {
		case err != nil:
			return "", fmt.Errorf("upstream %q is not a URL: use http://host:port", raw)
		case u.Scheme != "http":
			return "", fmt.Errorf("upstream %q: backends are reached over plain HTTP only: use http://host:port", raw)
		case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
			return "", fmt.Errorf("upstream %q has more than scheme, host and port: use http://host:port", raw)
		}
		if address = u.Host; u.Port() == "" {
			address = net.JoinHostPort(u.Hostname(), "80")
		}
	}
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
		return "", fmt.Errorf("upstream %q has no host or port: use host:port or http://host:port", raw)
	}
	return address, nil
}

func newUpstream(address string, dial func(context.Context, string) (net.Conn, error), c *clock, m *metrics) *upstream {
	u := &upstream{address: address, dial: dial, clock: c, failures: map[error]prometheus.Counter{},
		seconds: m.seconds.WithLabelValues(address)}
	for _, f := range []*failure{errDial, errTimeout, errBroken, errInvalid} {
		u.failures[f] = m.failures.WithLabelValues(address, f.label)
	}
	return u
}

// pooled returns an idle connection that has not expired, or nil.
func (u *upstream) pooled() *backendConn {
	oldest := u.clock.coarse() - idleFor.Milliseconds()
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.idle) == 0 {
		return nil
	}
	last := len(u.idle) - 1
	c := u.idle[last]
	u.idle[last] = nil
	u.idle = u.idle[:last]
	if c.since < oldest { // and so are all others, which are older
		_ = c.Close()
		u.closeIdle()
		return nil
	}
	return c
}

func (u *upstream) connect(ctx context.Context) (*backendConn, error) {
	c, err := u.dial(ctx, u.address)
	if err != nil {
		return nil, err
	}
	return &backendConn{Conn: c, reader: bufio.NewReaderSize(c, readerSize)}, nil
}

// setTimeout gives the backend d, and up to an eighth more, to respond. The extra time makes it unnecessary to set a
// deadline for each request.
func (c *backendConn) setTimeout(clock *clock, now, d time.Duration) error {
	ms := d.Milliseconds()
	least := now.Milliseconds() + ms
	if c.until >= least && c.until <= least+ms/8 {
		return nil
	}
	c.until = least + ms/8
	return c.SetDeadline(clock.at(c.until))
}

// release returns a connection to the pool, or closes it if it must not be reused or has unread input.
func (u *upstream) release(c *backendConn, reuse bool) {
	if !reuse || c.reader.Buffered() > 0 {
		_ = c.Close()
		return
	}
	c.since = u.clock.coarse()
	u.mu.Lock()
	keep := !u.closed && len(u.idle) < maxIdle
	if keep {
		u.idle = append(u.idle, c)
	}
	u.mu.Unlock()
	if !keep {
		_ = c.Close()
	}
}

// prune closes expired idle connections and returns how many are left.
func (u *upstream) prune() (left int) {
	oldest := u.clock.now() - idleFor.Milliseconds()
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for n < len(u.idle) && u.idle[n].since < oldest {
		_ = u.idle[n].Close()
		n++
	}
	u.idle = append(u.idle[:0], u.idle[n:]...)
	return len(u.idle)
}

// flush closes all idle connections. If the most recent one is dead, so are the older ones.
func (u *upstream) flush() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closeIdle()
}

func (u *upstream) closeIdle() {
	for i, c := range u.idle {
		_ = c.Close()
		u.idle[i] = nil
	}
	u.idle = u.idle[:0]
}

func (u *upstream) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	u.closeIdle()
}

// enter reports whether a request may try this backend. One request at a time tries a suspect, and not before retryAt
// unless the backend is the last resort. A request without a result after suspectFor does not prevent another try: it
// may wait for an order. If enter returns true, leave must follow.
func (u *upstream) enter(lastResort bool) bool {
	if !u.suspect.Load() {
		return true
	}
	now, until := u.clock.now(), u.probing.Load()
	return now >= until && (lastResort || now >= u.retryAt.Load()) &&
		u.probing.CompareAndSwap(until, now+suspectFor.Milliseconds())
}

// leave records the result of an attempt: nil or a failure.
func (u *upstream) leave(err error) {
	if err == nil {
		// A concurrent failure may have set suspect after a success has cleared its strike.
		if u.strikes.Load() > 0 || u.suspect.Load() {
			u.strikes.Store(0)
			u.suspect.Store(false)
		}
	} else {
		u.failures[err].Inc()
		if u.strikes.Add(1) >= maxStrikes || errors.Is(err, errDial) {
			u.retryAt.Store(u.clock.now() + suspectFor.Milliseconds())
			u.suspect.Store(true)
		}
	}
	if u.probing.Load() != 0 {
		u.probing.Store(0)
	}
}

// fetch requests a path over a new connection. The caller closes the body.
func (u *upstream) fetch(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return u.dial(ctx, u.address) },
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: readerSize,
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.address, err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: status %d", u.address, resp.StatusCode)
	}
	return resp, nil
}
