package gateway

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// upstream is one backend: its idle connections, and what is known of its health.
type upstream struct {
	name    string // host:port
	dial    func(ctx context.Context) (net.Conn, error)
	clock   *clock
	maxIdle int

	mu     sync.Mutex
	idle   []*backendConn // the last used one last
	closed bool

	strikes  atomic.Int32 // failures since the last answer
	suspect  atomic.Bool  // it is taken to be down
	retryAt  atomic.Int64 // ms; a suspect is left alone until then
	probing  atomic.Bool  // somebody is finding out whether a suspect is back
	failures *prometheus.CounterVec
	seconds  prometheus.Observer // of tries that were answered
}

// backendConn is a connection to a backend. One request at a time.
type backendConn struct {
	net.Conn
	reader *bufio.Reader
	since  int64 // ms: when it became idle
	until  int64 // ms: the deadline that is set; 0: none that is known
}

const (
	suspectFor  = 2 * time.Second  // how long a backend that seems down is left alone
	maxStrikes  = 3                // failures in a row that make one seem down; if it cannot be reached, one
	idleFor     = 20 * time.Second // less than any backend keeps an idle connection
	readerSize  = 8 << 10          // bytes: the largest head of a response
	defaultIdle = 512              // idle connections of one backend
)

// newUpstream reads "host:port" or "http://host:port".
func newUpstream(raw string, dialTimeout time.Duration, c *clock, failures *prometheus.CounterVec) (*upstream, error) {
	address := raw
	if strings.Contains(raw, "://") {
		u, err := url.Parse(raw)
		switch {
		case err != nil:
			return nil, fmt.Errorf("upstream %q is not a URL", raw)
		case u.Scheme != "http":
			return nil, fmt.Errorf("upstream %q: only http:// is spoken to backends", raw)
		case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
			return nil, fmt.Errorf("upstream %q must be http://host:port and no more", raw)
		}
		if address = u.Host; u.Port() == "" {
			address = net.JoinHostPort(u.Hostname(), "80")
		}
	}
	if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
		return nil, fmt.Errorf("upstream %q must be host:port or http://host:port", raw)
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &upstream{
		name: address, clock: c, maxIdle: defaultIdle, failures: failures,
		dial: func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", address) },
	}, nil
}

// pooled is an idle connection that is fresh enough to be alive, or nil.
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
	if c.since < oldest { // then all below it are older
		_ = c.Close()
		u.closeIdle()
		return nil
	}
	return c
}

func (u *upstream) connect(ctx context.Context) (*backendConn, error) {
	c, err := u.dial(ctx)
	if err != nil {
		return nil, err
	}
	return &backendConn{Conn: c, reader: bufio.NewReaderSize(c, readerSize)}, nil
}

// allow gives the backend d for a request from now on, and an eighth more at most, so that the deadline need not be set for each.
func (c *backendConn) allow(clock *clock, now, d time.Duration) error {
	ms := d.Milliseconds()
	least := now.Milliseconds() + ms
	if c.until >= least && c.until <= least+ms/8 {
		return nil
	}
	c.until = least + ms/8
	return c.SetDeadline(clock.at(c.until))
}

// put keeps a connection for the next request.
func (u *upstream) put(c *backendConn) {
	c.since = u.clock.coarse()
	u.mu.Lock()
	keep := !u.closed && len(u.idle) < u.maxIdle
	if keep {
		u.idle = append(u.idle, c)
	}
	u.mu.Unlock()
	if !keep {
		_ = c.Close()
	}
}

// prune closes the connections that have been idle for too long.
func (u *upstream) prune() {
	oldest := u.clock.coarse() - idleFor.Milliseconds()
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for n < len(u.idle) && u.idle[n].since < oldest {
		_ = u.idle[n].Close()
		n++
	}
	u.idle = append(u.idle[:0], u.idle[n:]...)
}

// flush closes every idle connection: when one turns out to be dead, so have the others been for as long.
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

// enter says whether a request may try this backend. A suspect is tried by one request at a time, and unless it is the last resort, not before its
// time. leave must follow.
func (u *upstream) enter(lastResort bool) bool {
	if !u.suspect.Load() {
		return true
	}
	if !lastResort && u.clock.now() < u.retryAt.Load() {
		return false
	}
	return u.probing.CompareAndSwap(false, true)
}

// leave takes down how a try ended.
func (u *upstream) leave(err error) {
	switch {
	case err == nil:
		if u.strikes.Load() > 0 {
			u.strikes.Store(0)
			u.suspect.Store(false)
		}
	default:
		u.failures.WithLabelValues(u.name, failureOf(err)).Inc()
		if u.strikes.Add(1) >= maxStrikes || errors.Is(err, errDial) {
			u.retryAt.Store(u.clock.now() + suspectFor.Milliseconds())
			u.suspect.Store(true)
		}
	}
	if u.probing.Load() {
		u.probing.Store(false)
	}
}

// How a try at a backend fails.
var (
	errDial    = errors.New("cannot be reached")
	errBroken  = errors.New("closed the connection without an answer")
	errTimeout = errors.New("did not answer in time")
	errGarbled = errors.New("answered what is not HTTP")
)

func failureOf(err error) string {
	switch {
	case errors.Is(err, errDial):
		return "dial"
	case errors.Is(err, errBroken):
		return "broken"
	case errors.Is(err, errTimeout):
		return "timeout"
	}
	return "garbled"
}
