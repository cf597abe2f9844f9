package proxy

import (
	"bufio"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// pool holds the idle connections to one backend. Safe for concurrent use.
type pool struct {
	clock *clock

	mu     sync.Mutex
	idle   []*backendConn // ordered by last use, the most recent last
	closed bool
}

const (
	idleFor = 20 * time.Second // shorter than the keep-alive timeout of backends
	maxIdle = 512              // idle connections of a backend
)

// backendConn is a connection to a backend. It serves one request at a time.
type backendConn struct {
	net.Conn
	reader *bufio.Reader
	since  int64 // when it became idle, in ms of the clock
}

// isOpen reports whether the backend has neither closed an idle connection nor sent anything over it.
func (c *backendConn) isOpen() (open bool) {
	system, ok := c.Conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := system.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK) //nolint:gosec // descriptors are small
		open = errors.Is(err, syscall.EAGAIN)
	})
	return open && err == nil
}

// pooled returns an idle connection that has not expired, or nil.
func (p *pool) pooled() *backendConn {
	oldest := p.clock.now() - idleFor.Milliseconds()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	last := len(p.idle) - 1
	c := p.idle[last]
	p.idle[last] = nil
	p.idle = p.idle[:last]
	if c.since < oldest { // and so are all others, which are older
		_ = c.Close()
		p.closeIdle()
		return nil
	}
	return c
}

// release returns a connection to the pool, or closes it if it must not be reused or has unread input.
func (p *pool) release(c *backendConn, reuse bool) {
	if !reuse || c.reader.Buffered() > 0 {
		_ = c.Close()
		return
	}
	c.since = p.clock.now()
	p.mu.Lock()
	keep := !p.closed && len(p.idle) < maxIdle
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		_ = c.Close()
	}
}

func (p *pool) prune() {
	oldest := p.clock.now() - idleFor.Milliseconds()
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for n < len(p.idle) && p.idle[n].since < oldest {
		_ = p.idle[n].Close()
		n++
	}
	p.idle = slices.Delete(p.idle, 0, n)
}

// flush closes all idle connections. If the most recent one is dead, so are the older ones.
func (p *pool) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closeIdle()
}

func (p *pool) closeIdle() {
	for i, c := range p.idle {
		_ = c.Close()
		p.idle[i] = nil
	}
	p.idle = p.idle[:0]
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.closeIdle()
}
