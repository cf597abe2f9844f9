package proxy

import (
	"io"
	"net"
	"time"
)

// Linger makes Close read what the client is still sending, so that the client can read the response.
func (c *Conn) Linger() { c.linger.Store(true) }

// Limits of lingering.
const (
	lingerFor   = 500 * time.Millisecond
	lingerBytes = 256 << 10
)

// Close lingers if Linger was called: closing a connection with unread input makes the kernel reset it, and the client
// would not see the response.
func (c *Conn) Close() error {
	if !c.closed.CompareAndSwap(false, true) {
		return net.ErrClosed
	}
	c.listener.remove(c)
	if c.linger.Load() && !c.mute {
		c.drain()
	}
	return c.Conn.Close()
}

func (c *Conn) drain() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok { // TCP or TLS
		_ = half.CloseWrite()
	} else if c.header != nil {
		if tcp, ok := c.header.TCPConn(); ok {
			_ = tcp.CloseWrite()
		}
	}
	_ = c.Conn.SetReadDeadline(time.Now().Add(lingerFor))
	_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
}

// maxDiscarded is the number of bytes that a client may send after its request for an event stream.
const maxDiscarded = 64 << 10

// onDisconnect calls f when the client closes the connection. It reads and discards further input. It also calls f when
// the client has sent more than maxDiscarded, because otherwise one client could keep a processor busy.
func (c *Conn) onDisconnect(f func()) {
	_ = c.Conn.SetReadDeadline(time.Time{})
	go func() {
		defer f()
		var sink [256]byte
		for left := maxDiscarded; left >= 0; {
			n, err := c.Conn.Read(sink[:])
			if err != nil {
				return
			}
			left -= n
		}
		c.Linger()
	}()
}
