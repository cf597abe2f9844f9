package redisconn

import (
	"net"
	"time"
)

// trackedConn is a connection to the master.
type trackedConn struct {
	*net.TCPConn
	addr   string
	master *master
}

// Close closes and untracks the connection.
func (c *trackedConn) Close() error {
	c.master.mu.Lock()
	delete(c.master.open, c)
	c.master.mu.Unlock()
	return c.TCPConn.Close()
}

// failedConn is a connection that could not be opened. Its operations return the error.
type failedConn struct{ err error }

func (c failedConn) Read([]byte) (int, error)       { return 0, c.err }
func (c failedConn) Write([]byte) (int, error)      { return 0, c.err }
func (failedConn) Close() error                     { return nil }
func (failedConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (failedConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (failedConn) SetDeadline(time.Time) error      { return nil }
func (failedConn) SetReadDeadline(time.Time) error  { return nil }
func (failedConn) SetWriteDeadline(time.Time) error { return nil }
