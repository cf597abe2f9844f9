package httpserver

import (
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// halfConn is a TCP or Unix connection.
type halfConn interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// Closing a connection with unread bytes resets it, and the reset can overtake the response: the client then never
// reads why its request was rejected. After rejecting a request that it has not read completely, the server therefore
// continues to read for up to lingerTime (RFC 9112, section 9.6).
const (
	lingerTime  = 500 * time.Millisecond
	lingerBytes = 2 << 20 // twice the body limit of the admin API
)

type lingeringConn struct {
	halfConn
	unread atomic.Bool // the request was not read completely
}

func (c *lingeringConn) Close() error {
	if c.unread.Swap(false) && c.CloseWrite() == nil && c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, c.halfConn, lingerBytes) // ends with the client's close, or at the deadline
	}
	return c.halfConn.Close()
}

// lingerOnClose makes a connection linger when it is closed.
func lingerOnClose(c net.Conn) {
	if l, ok := c.(*lingeringConn); ok {
		l.unread.Store(true)
	}
}
