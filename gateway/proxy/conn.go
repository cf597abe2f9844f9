package proxy

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pires/go-proxyproto"
)

// Conn is a client connection accepted by Serve. It passes a request head to fasthttp only when the head is complete
// and valid, and it enforces the client timeouts. The deadlines that fasthttp sets are ignored: Conn sets its own.
type Conn struct {
	net.Conn
	socket    net.Conn // below Conn: without TLS and PROXY header
	peer      netip.Addr
	header    *proxyproto.Conn // below Conn, if connections begin with a PROXY header
	listener  *listener
	validator validator
	poisoned  bool   // fasthttp has received the invalid bytes
	fresh     bool   // nothing has been read
	ahead     []byte // bytes read after the end of a request, not validated
	hurried   bool   // the deadline of the current request is set
	mute      bool   // no response is sent: the client was too slow or has left

	// idleSince is when the connection began to wait for a request, in ms of the clock and at least 1. It is 0 during a
	// request, and evicted after the connection was closed to make room for another.
	idleSince atomic.Int64
	linger    atomic.Bool
	closed    atomic.Bool
}

// Peer returns the remote address of the connection.
func (c *Conn) Peer() netip.Addr { return c.peer }

// ProxySource returns the source address of the PROXY header, or the zero Addr if there is none. Call it after the
// first read.
func (c *Conn) ProxySource() (a netip.Addr) {
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
	return tcp.AddrPort().Addr().Unmap()
}

// Fault returns the reason why the connection was stopped, or NoFault.
func (c *Conn) Fault() Fault { return c.validator.fault }

// InChunkedBody reports whether a chunked body was the last to be read.
func (c *Conn) InChunkedBody() bool { return c.validator.state == chunkedBody }

// IsHead reports whether the method of the request with the fault, or with the chunked body, is HEAD.
func (c *Conn) IsHead() bool { return c.validator.isHead }

// invalid replaces the bytes that the validator rejected. A zero byte is valid in no part of a head, so fasthttp
// stops there.
var invalid = []byte("\x00\r\n\r\n")

const evicted = -1

// Read returns validated bytes, of one request only.
func (c *Conn) Read(p []byte) (int, error) {
	if c.validator.fault != NoFault {
		return c.poison(p)
	}
	if !c.validator.idle() || c.fresh {
		c.setRequestDeadline()
	} else {
		c.setIdleDeadline()
	}
	idle := c.validator.idle() && len(c.ahead) == 0
	if idle {
		c.idleSince.Store(max(c.listener.clock.now(), 1))
	}
	requests := c.validator.requests
	for n := 0; ; {
		m := copy(p[n:], c.ahead)
		c.ahead = append(c.ahead[:0], c.ahead[m:]...)
		var err error
		if m == 0 {
			m, err = c.Conn.Read(p[n:])
			c.fresh = false
			if idle && c.idleSince.Swap(0) == evicted {
				return 0, io.EOF
			}
			idle = false
		}
		left, good := c.validator.check(p[n : n+m])
		rest := p[n+good : n+left]
		n += good
		switch {
		case c.validator.fault != NoFault:
			if n > 0 {
				return n, nil
			}
			return c.poison(p)
		case c.validator.requests != requests:
			// fasthttp delays a response while more input is buffered, so bytes of the next request are kept until the
			// next Read.
			c.ahead = slices.Insert(c.ahead, 0, rest...)
			return n, nil
		case err != nil:
			return n, c.readError(err)
		case !c.validator.inHead() || c.validator.idle() || n == len(p):
			return n, nil
		}
		c.setRequestDeadline()
	}
}

// poison makes fasthttp reject the request.
func (c *Conn) poison(p []byte) (int, error) {
	if c.poisoned {
		return 0, io.EOF
	}
	c.poisoned = true
	c.Linger()
	return copy(p, invalid), nil
}

// readError translates an error of the connection. Between requests it ends the connection, also if the PROXY header
// or the TLS handshake is missing. Within a request, the client gets no response: nginx sends none, and clients must
// not be able to distinguish the two edges.
func (c *Conn) readError(err error) error {
	if c.validator.idle() {
		return io.EOF
	}
	c.mute = true
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		c.validator.fault, c.poisoned = RequestTimeout, true
	}
	return err
}

// setIdleDeadline gives the client the idle timeout before its next request.
func (c *Conn) setIdleDeadline() {
	c.hurried = false
	_ = c.Conn.SetReadDeadline(time.Now().Add(c.listener.config.IdleTimeout))
}

// setRequestDeadline gives the client the request timeout for the rest of its request. It takes effect once a request.
func (c *Conn) setRequestDeadline() {
	if !c.hurried {
		c.hurried = true
		_ = c.Conn.SetReadDeadline(time.Now().Add(c.listener.config.RequestTimeout))
	}
}

// Write discards p if the client gets no response.
func (c *Conn) Write(p []byte) (int, error) {
	if c.mute {
		return len(p), nil
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(c.listener.config.WriteTimeout))
	return c.Conn.Write(p)
}

// SetReadDeadline does nothing: see Conn.
func (c *Conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing: see Conn.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }

// SetDeadline does nothing: see Conn.
func (c *Conn) SetDeadline(time.Time) error { return nil }

// AddrOf returns the IP address of a network address, or 0.0.0.0 if it has none, as for pipes.
func AddrOf(a net.Addr) netip.Addr {
	if a != nil {
		if ap, err := netip.ParseAddrPort(a.String()); err == nil {
			return ap.Addr().Unmap().WithZone("")
		}
	}
	return netip.IPv4Unspecified()
}
