package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"

	"sluice/internal/listen"
)

// listener accepts client connections and wraps each in a Conn. It keeps at most MaxConns of them open.
type listener struct {
	net.Listener
	config  *Config
	clock   *clock
	metrics *metrics

	mu   sync.Mutex
	open map[*Conn]struct{}
}

// Accept retries temporary errors (listen.Accept).
func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := listen.Accept(l.Listener, func(err error, pause time.Duration) {
			l.config.Logger.Warn("accept failed, retrying", "err", err, "wait", pause)
		})
		if err != nil {
			return nil, err
		}
		if wrapped := l.wrap(c); wrapped != nil {
			return wrapped, nil
		}
	}
}

// wrap makes room by closing an idle connection if MaxConns connections are open: clients that only keep connections
// must not exclude others. If it finds no idle one, it sends the overload response, closes c and returns nil.
func (l *listener) wrap(c net.Conn) *Conn {
	wrapped := &Conn{Conn: c, socket: c, peer: AddrOf(c.RemoteAddr()), listener: l, fresh: true}
	if l.config.ProxyProtocol {
		wrapped.header = proxyproto.NewConn(c, proxyproto.WithPolicy(proxyproto.REQUIRE))
		wrapped.Conn = wrapped.header
	}
	if l.config.TLS != nil {
		wrapped.Conn = tls.Server(wrapped.Conn, l.config.TLS)
	}
	l.mu.Lock()
	room := len(l.open) < l.config.MaxConns || l.evict()
	if room {
		l.open[wrapped] = struct{}{}
	}
	l.mu.Unlock()
	if !room {
		l.metrics.refused.Inc()
		_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = c.Write(l.config.Overload)
		_ = c.Close()
		return nil
	}
	l.metrics.connections.Inc()
	return wrapped
}

const (
	candidates = 256 // bounds the connections among which longestIdle chooses
	evictTries = 4   // bounds the connections that evict tries to close: l.mu is held
)

// evict closes an idle connection and reports whether it has found one. A connection that gets a request before evict
// closes it stays open, and evict tries another. l.mu must be held.
func (l *listener) evict() bool {
	for range evictTries {
		c, since := l.longestIdle()
		if c == nil {
			return false
		}
		if c.idleSince.CompareAndSwap(since, evicted) {
			delete(l.open, c)
			_ = c.socket.Close()
			return true
		}
	}
	return false
}

// longestIdle returns the connection that has been idle for the longest time among some that the map's random order
// selects, and since when, in ms of the clock. It returns nil if none of them is idle. l.mu must be held.
func (l *listener) longestIdle() (longest *Conn, since int64) {
	seen := 0
	for c := range l.open {
		if s := c.idleSince.Load(); s > 0 && (longest == nil || s < since) {
			longest, since = c, s
		}
		if seen++; seen == candidates {
			break
		}
	}
	return longest, since
}

func (l *listener) remove(c *Conn) {
	l.mu.Lock()
	delete(l.open, c)
	l.mu.Unlock()
	l.metrics.connections.Dec()
}

// awaitClosed waits until all connections are closed, or ctx ends. fasthttp's Shutdown may return shortly before the
// last connections are closed.
func (l *listener) awaitClosed(ctx context.Context) {
	t := time.NewTicker(5 * time.Millisecond)
	defer t.Stop()
	for l.count() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

func (l *listener) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open)
}

func (l *listener) closeAll() int {
	l.mu.Lock()
	left := make([]*Conn, 0, len(l.open))
	for c := range l.open {
		left = append(left, c)
	}
	l.mu.Unlock()
	for _, c := range left {
		_ = c.Conn.Close()
	}
	return len(left)
}
