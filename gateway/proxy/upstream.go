package proxy

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// upstream is one backend: its address, its idle connections and its health.
type upstream struct {
	address  string // host:port or unix:/path
	dial     func(ctx context.Context, address string) (net.Conn, error)
	failures map[error]prometheus.Counter
	seconds  prometheus.Observer // of successful attempts

	pool // its clock is that of the upstream

	strikes atomic.Int32 // consecutive failures
	suspect atomic.Bool  // considered down
	retryAt atomic.Int64 // in ms of the clock; a suspect is not tried before
	probing atomic.Int64 // in ms of the clock; until then, one request tests a suspect alone
}

const (
	suspectFor = 2 * time.Second // how long a backend that is considered down is not tried
	maxStrikes = 3               // consecutive failures after which a backend is considered down
	readerSize = 8 << 10         // bytes; the largest head of a response
)

func newUpstream(address string, dial func(context.Context, string) (net.Conn, error), c *clock, m *metrics) *upstream {
	u := &upstream{address: address, dial: dial, failures: map[error]prometheus.Counter{},
		seconds: m.seconds.WithLabelValues(address), pool: pool{clock: c}}
	for _, f := range []*failure{errDial, errTimeout, errBroken, errInvalid} {
		u.failures[f] = m.failures.WithLabelValues(address, f.label)
	}
	return u
}

func (u *upstream) connect() (*backendConn, error) {
	c, err := u.dial(context.Background(), u.address)
	if err != nil {
		return nil, err
	}
	return &backendConn{Conn: c, reader: bufio.NewReaderSize(c, readerSize)}, nil
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
