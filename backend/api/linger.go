package api

import (
	"io"
	"net"
	"sync/atomic"
	"time"
)

// A connection that is closed with unread bytes is reset, and the reset can overtake the answer: the client then never learns why.
// So a request that was refused before it was read to its end is read on for a moment after the answer (RFC 9112, section 9.6).
const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 2 << 20 // twice what an operator may send
)

// lingering accepts connections that can linger.
type lingering struct{ net.Listener }

func (l lingering) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		return &lingeringConn{TCPConn: tcp}, nil
	}
	return c, err
}

type lingeringConn struct {
	*net.TCPConn
	unread atomic.Bool // the request was not read to its end
}

func (c *lingeringConn) Close() error {
	if c.unread.Swap(false) && c.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, c.TCPConn, lingerBytes) // it ends with the client's close, or the deadline
	}
	return c.TCPConn.Close()
}

// leftUnread makes a connection linger when it is closed.
func leftUnread(c net.Conn) {
	if l, ok := c.(*lingeringConn); ok {
		l.unread.Store(true)
	}
}
