package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"
)

// listener hands out guarded connections, at most so many at a time.
type listener struct {
	net.Listener
	clock   *clock
	limits  connLimits
	log     *slog.Logger
	metrics *metrics
	refusal []byte      // a whole response, for connections that are turned away for want of room
	proxied bool        // connections begin with a PROXY header
	tls     *tls.Config // may be nil

	mu   sync.Mutex
	open map[*conn]struct{}
}

type connLimits struct {
	most  int
	head  time.Duration // for a whole request from its first byte
	idle  time.Duration // between requests
	write time.Duration // between two writes of which the client takes nothing
}

// Accept outlives what net.Listener does not promise to: running out of descriptors ends the process's trouble soon, and must not end the edge.
func (l *listener) Accept() (net.Conn, error) {
	for wait := time.Duration(0); ; {
		c, err := l.Listener.Accept()
		if err == nil {
			wait = 0
			if guarded := l.guard(c); guarded != nil {
				return guarded, nil
			}
			continue
		}
		if !passing(err) {
			return nil, err
		}
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		l.log.Warn("connections cannot be accepted for now", "err", err, "wait", wait)
		time.Sleep(wait)
	}
}

// passing says whether an error of Accept will go away.
func passing(err error) bool {
	for _, e := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (l *listener) guard(c net.Conn) *conn {
	g := &conn{Conn: c, peer: peerOf(c.RemoteAddr()), listener: l, fresh: true}
	if l.proxied {
		g.header = proxyproto.NewConn(c, proxyproto.WithPolicy(proxyproto.REQUIRE))
		g.Conn = g.header
	}
	if l.tls != nil {
		g.Conn = tls.Server(g.Conn, l.tls)
	}
	l.mu.Lock()
	room := len(l.open) < l.limits.most
	if room {
		l.open[g] = struct{}{}
	}
	l.mu.Unlock()
	if !room {
		l.metrics.turnedAway.Inc()
		_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond))
		_, _ = c.Write(l.refusal)
		_ = c.Close()
		return nil
	}
	l.metrics.connections.Inc()
	return g
}

// awaitClosed waits until ctx ends for those that serve connections to close them: fasthttp counts a connection off a moment before it does.
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

// closeAll closes the connections that are left when the time to drain is over.
func (l *listener) closeAll() int {
	l.mu.Lock()
	left := make([]*conn, 0, len(l.open))
	for c := range l.open {
		left = append(left, c)
	}
	l.mu.Unlock()
	for _, c := range left {
		_ = c.Conn.Close()
	}
	return len(left)
}

// conn is a client's connection. It reads heads whole before it passes them on, through a guard, and keeps the client to its time: the deadlines
// that fasthttp sets are not used, because they would cost two calls a request where none is needed.
type conn struct {
	net.Conn
	peer     netip.Addr
	header   *proxyproto.Conn // below Conn, if connections begin with a PROXY header
	listener *listener
	guard    guard
	sent     bool   // the fault has been passed on
	fresh    bool   // nothing has been read yet
	kept     []byte // of the next request, seen by the guard and not yet passed on
	hurried  bool   // the deadline for this request is set
	mute     bool   // the client gets no answer: its time is over, or it has left

	readBy, writeBy int64 // the deadlines that are set, in ms of the clock
	linger          atomic.Bool
	closed          atomic.Bool
}

// poison is passed on in place of what a guard refused. No part of a head may hold a zero byte, so that the reader is sure to stop there.
var poison = []byte("\x00\r\n\r\n")

func (c *conn) Read(p []byte) (int, error) {
	if c.guard.fault != noFault {
		return c.poisoned(p)
	}
	switch {
	case !c.guard.idle() || c.fresh:
		c.hurry()
	default:
		c.allow(c.listener.limits.idle)
	}
	ended := c.guard.ended
	n := copy(p, c.kept)
	if c.kept = c.kept[n:]; len(c.kept) > 0 || n > 0 && !c.guard.inHead() {
		return n, nil
	}
	for {
		m, err := c.Conn.Read(p[n:])
		c.fresh = false
		m, good := c.guard.take(p[n : n+m])
		good += n
		n += m
		switch {
		case c.guard.fault != noFault:
			if good > 0 {
				return good, nil
			}
			return c.poisoned(p)
		case err != nil:
			return n, c.late(err)
		case c.guard.ended != ended && !c.guard.idle():
			// The beginning of the next request must not hold up the answer to the one before it, and fasthttp sends none while there is more to read.
			n -= c.guard.since
			c.kept = append(c.kept[:0], p[n:n+c.guard.since]...)
			c.hurried = false
			return n, nil
		case !c.guard.inHead() || c.guard.idle() || n == len(p):
			return n, nil
		}
		c.hurry()
	}
}

func (c *conn) poisoned(p []byte) (int, error) {
	if c.sent {
		return 0, io.EOF
	}
	c.sent = true
	c.linger.Store(true)
	return copy(p, poison), nil
}

// late is what an error on the connection means. Between requests it just ends the connection, also for want of a PROXY header or of TLS. A client whose
// time is over within a request, or that leaves it half, gets no answer: nginx can give none, and the two edges are to be told apart by nothing.
func (c *conn) late(err error) error {
	if c.guard.idle() {
		return io.EOF
	}
	c.mute = true
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		c.guard.fault, c.sent = requestSlow, true
	}
	return err
}

// named is whom the PROXY header names; the zero Addr where there is none, or where it names nobody. Call it after the first read.
func (c *conn) named() (a netip.Addr) {
	if c.header == nil {
		return a
	}
	h := c.header.ProxyHeader()
	if h == nil || h.Command.IsLocal() {
		return a
	}
	tcp, ok := h.SourceAddr.(*net.TCPAddr)
	if !ok {
		return a
	}
	a, _ = netip.AddrFromSlice(tcp.IP)
	return a.Unmap()
}

// allow lets the client wait before its next request: for d at least, and a quarter more at most, so that the deadline need not be set for each.
func (c *conn) allow(d time.Duration) {
	c.hurried = false
	ms := d.Milliseconds()
	if least := c.listener.clock.coarse() + ms; c.readBy < least || c.readBy > least+ms/2 {
		c.readBy = least + ms/4
		_ = c.Conn.SetReadDeadline(c.listener.clock.at(c.readBy))
	}
}

// hurry gives the client its time for the rest of a request, once.
func (c *conn) hurry() {
	if !c.hurried {
		c.hurried = true
		c.readBy = c.listener.clock.now() + c.listener.limits.head.Milliseconds()
		_ = c.Conn.SetReadDeadline(c.listener.clock.at(c.readBy))
	}
}

func (c *conn) Write(p []byte) (int, error) {
	if c.mute {
		return len(p), nil
	}
	d := c.listener.limits.write.Milliseconds()
	if least := c.listener.clock.coarse() + d; c.writeBy < least {
		c.writeBy = least + d/4
		_ = c.Conn.SetWriteDeadline(c.listener.clock.at(c.writeBy))
	}
	return c.Conn.Write(p)
}

// SetReadDeadline does nothing: see conn.
func (c *conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing: see conn.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline does nothing: see conn.
func (c *conn) SetDeadline(time.Time) error { return nil }

// Close waits a moment for a client that is being refused and is still sending: closing on data that nobody has read makes the kernel reset the
// connection, and the client would never see why.
func (c *conn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	c.listener.mu.Lock()
	delete(c.listener.open, c)
	c.listener.mu.Unlock()
	c.listener.metrics.connections.Dec()
	if c.linger.Load() && !c.mute {
		c.drain()
	}
	return c.Conn.Close()
}

func (c *conn) drain() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok { // TCP, or TLS
		_ = half.CloseWrite()
	} else if tcp, ok := c.header.TCPConn(); ok {
		_ = tcp.CloseWrite()
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(lingerFor))
	_, _ = io.CopyN(io.Discard, c.Conn, lingerMost)
}

const (
	lingerFor  = 500 * time.Millisecond
	lingerMost = 256 << 10
)

// watch calls gone when the client leaves. From now on nobody else may read from the connection.
func (c *conn) watch(gone func()) {
	_ = c.Conn.SetReadDeadline(time.Time{})
	go func() {
		var sink [256]byte
		for {
			if _, err := c.Conn.Read(sink[:]); err != nil {
				gone()
				return
			}
		}
	}()
}
