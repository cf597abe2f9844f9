package assemble

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"sluice/internal/loop"
)

// memoryConn is one end of a connection within the process. A write never blocks, because the two ends of a pipelined
// protocol may both write before they read; unread data stays in memory. (net.Pipe has no buffer, and
// fasthttputil.PipeConns blocks after four unread writes.) Reads of one end must not be concurrent, and neither must
// writes. The deadline of writes has no effect.
type memoryConn struct {
	in, out *stream

	mu       sync.Mutex
	deadline time.Time // of Read; zero: none
}

// stream is one direction of a connection.
type stream struct {
	mu     sync.Mutex
	data   bytes.Buffer
	closed bool      // by either end
	event  loop.Wake // data, the end, or another deadline
}

// memoryPipe returns the two ends of a new connection.
func memoryPipe() (client, server net.Conn) {
	a, b := &stream{event: loop.NewWake()}, &stream{event: loop.NewWake()}
	return &memoryConn{in: a, out: b}, &memoryConn{in: b, out: a}
}

// Read waits for data, the end of the connection, or the deadline.
func (c *memoryConn) Read(p []byte) (int, error) {
	for {
		n, err := c.in.take(p)
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		c.mu.Lock()
		deadline := c.deadline
		c.mu.Unlock()
		if deadline.IsZero() {
			<-c.in.event
			continue
		}
		wait := time.Until(deadline)
		if wait <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		select {
		case <-c.in.event:
		case <-time.After(wait):
		}
	}
}

// take moves data to p. It returns io.EOF at the end, and 0 if there is no data yet.
func (s *stream) take(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data.Len() > 0 {
		n, err := s.data.Read(p)
		if s.data.Len() == 0 && s.data.Cap() > maxKept {
			s.data = bytes.Buffer{}
		}
		return n, err
	}
	if s.closed {
		return 0, io.EOF
	}
	return 0, nil
}

// maxKept is the largest buffer that an idle connection keeps.
const maxKept = 16 << 10

// Write appends p to the data that the other end reads.
func (c *memoryConn) Write(p []byte) (int, error) {
	s := c.out
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, io.ErrClosedPipe
	}
	s.data.Write(p)
	s.event.Up()
	return len(p), nil
}

// Close ends the connection. The other end can still read data that was written before.
func (c *memoryConn) Close() error {
	for _, s := range []*stream{c.in, c.out} {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.event.Up()
	}
	return nil
}

// SetReadDeadline also applies to a Read that waits.
func (c *memoryConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	sooner := !t.IsZero() && (c.deadline.IsZero() || t.Before(c.deadline))
	c.deadline = t
	c.mu.Unlock()
	if sooner {
		c.in.event.Up()
	}
	return nil
}

// SetDeadline is SetReadDeadline.
func (c *memoryConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline has no effect, because no write waits.
func (c *memoryConn) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr returns the same address for all connections.
func (c *memoryConn) LocalAddr() net.Addr { return memoryAddr }

// RemoteAddr returns the same address for all connections.
func (c *memoryConn) RemoteAddr() net.Addr { return memoryAddr }

// memoryAddr is the address of both ends.
var memoryAddr = &net.UnixAddr{Net: "memory", Name: "memory"}
