package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"
	"github.com/prometheus/client_golang/prometheus"
)

// listener accepts client connections and wraps each in a Conn. It keeps at most maxConns of them open.
type listener struct {
	net.Listener
	clock    *clock
	log      *slog.Logger
	overload []byte // a complete HTTP response for connections beyond maxConns
	proxied  bool   // connections begin with a PROXY header
	tls      *tls.Config
	maxConns int
	request  time.Duration // limit for a whole request, from its first byte
	idle     time.Duration // limit between requests
	write    time.Duration // limit for the client to accept a part of a response

	connections prometheus.Gauge
	refused     prometheus.Counter

	mu   sync.Mutex
	open map[*Conn]struct{}
}

// Accept retries temporary errors, such as a lack of file descriptors, with a backoff of up to one second.
func (l *listener) Accept() (net.Conn, error) {
	for wait := time.Duration(0); ; {
		c, err := l.Listener.Accept()
		if err == nil {
			wait = 0
			if wrapped := l.wrap(c); wrapped != nil {
				return wrapped, nil
			}
			continue
		}
		if !isTemporary(err) {
			return nil, err
		}
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		l.log.Warn("accept failed, retrying", "err", err, "wait", wait)
		time.Sleep(wait)
	}
}

func isTemporary(err error) bool {
	for _, e := range []syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// wrap returns nil if maxConns connections are open. It then sends the overload response and closes c.
func (l *listener) wrap(c net.Conn) *Conn {
	wrapped := &Conn{Conn: c, peer: AddrOf(c.RemoteAddr()), listener: l, fresh: true}
	if l.proxied {
		wrapped.header = proxyproto.NewConn(c, proxyproto.WithPolicy(proxyproto.REQUIRE))
		wrapped.Conn = wrapped.header
	}
	if l.tls != nil {
		wrapped.Conn = tls.Server(wrapped.Conn, l.tls)
	}
	l.mu.Lock()
	room := len(l.open) < l.maxConns
	if room {
		l.open[wrapped] = struct{}{}
	}
	l.mu.Unlock()
	if !room {
		l.refused.Inc()
		_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = c.Write(l.overload)
		_ = c.Close()
		return nil
	}
	l.connections.Inc()
	return wrapped
}

// remove removes a closed connection.
func (l *listener) remove(c *Conn) {
	l.mu.Lock()
	delete(l.open, c)
	l.mu.Unlock()
	l.connections.Dec()
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

// closeAll closes all open connections and returns their number.
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
