package assemble

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// memoryConn is one end of a connection within the process. A write never blocks, because the two ends of a pipelined
// protocol may both write before they read; unread data stays in memory. (net.Pipe has no buffer, and
// fasthttputil.PipeConns blocks after four unread writes.) The deadline of writes has no effect.
type memoryConn struct{ in, out *stream }

// stream is one direction of a connection.
type stream struct {
	mu       sync.Mutex
	changed  *sync.Cond // data, the end, or the deadline
	data     bytes.Buffer
	closed   bool        // by either end
	deadline time.Time   // of Read; zero: none
	timer    *time.Timer // of the deadline
}

func newStream() *stream {
	s := &stream{}
	s.changed = sync.NewCond(&s.mu)
	s.timer = time.AfterFunc(time.Hour, func() { // the lock ensures that a Read is not between its check and its wait
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	s.timer.Stop()
	return s
}

// memoryPipe returns the two ends of a new connection.
func memoryPipe() (client, server net.Conn) {
	a, b := newStream(), newStream()
	return memoryConn{a, b}, memoryConn{b, a}
}

// maxKept is the largest buffer that an idle connection keeps.
const maxKept = 16 << 10

// Read waits for data, the end of the connection, or the deadline.
func (c memoryConn) Read(p []byte) (int, error) {
	s := c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.data.Len() == 0 && len(p) > 0 {
		switch {
		case s.closed:
			return 0, io.EOF
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		}
		s.changed.Wait()
	}
	n, err := s.data.Read(p)
	if s.data.Len() == 0 && s.data.Cap() > maxKept {
		s.data = bytes.Buffer{}
	}
	return n, err
}

// Write appends p to the data that the other end reads.
func (c memoryConn) Write(p []byte) (int, error) {
	s := c.out
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, io.ErrClosedPipe
	}
	s.changed.Broadcast()
	return s.data.Write(p)
}

// Close ends the connection. The other end can still read data that was written before.
func (c memoryConn) Close() error {
	for _, s := range []*stream{c.in, c.out} {
		s.mu.Lock()
		s.closed = true
		s.timer.Stop()
		s.changed.Broadcast()
		s.mu.Unlock()
	}
	return nil
}

// SetReadDeadline also applies to a Read that waits.
func (c memoryConn) SetReadDeadline(t time.Time) error {
	s := c.in
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadline = t
	s.timer.Stop()
	if !t.IsZero() && !s.closed {
		s.timer.Reset(time.Until(t))
	}
	return nil
}

// SetDeadline is SetReadDeadline.
func (c memoryConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline has no effect, because no write waits.
func (memoryConn) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr returns the same address for all connections.
func (memoryConn) LocalAddr() net.Addr { return memoryAddr }

// RemoteAddr returns the same address for all connections.
func (memoryConn) RemoteAddr() net.Addr { return memoryAddr }

// memoryAddr is the address of both ends.
var memoryAddr = &net.UnixAddr{Net: "memory", Name: "memory"}
