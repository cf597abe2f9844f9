package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"sluice/internal/listen"
)

// Serve answers on ln until ctx ends, then drains: it accepts no more connections, ends event streams, answers
// waiting requests with the current state, finishes open requests, and returns nil. Requests that outlive the drain
// timeout cause an error. Serve closes ln. A Server serves once, on one listener.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	open := listener{ln, sync.OnceValue(ln.Close)}
	done := make(chan error, 1)
	go func() { done <- s.fiber.Server().Serve(open) }()
	select {
	case err := <-done:
		s.BeginDrain()
		_ = open.Close()
		return fmt.Errorf("httpserver: serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}

	// The order matters: long requests are stopped, then the listener is closed, then the remaining requests are
	// awaited. Closing the listener here as well covers a server that has not begun to listen yet.
	s.BeginDrain()
	_ = open.Close()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain)
	defer cancel()
	err := s.fiber.Server().ShutdownWithContext(limit)
	<-done
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("httpserver: drain %s: %w", ln.Addr(), err)
	}
	return nil
}

// listener accepts connections that can linger. Accept retries after temporary errors; fasthttp would stop serving.
type listener struct {
	net.Listener
	close func() error // closes once, although both Serve and fasthttp close it
}

func (l listener) Close() error { return l.close() }

func (l listener) Accept() (net.Conn, error) {
	c, err := listen.Accept(l.Listener, nil)
	if half, ok := c.(halfConn); ok && err == nil {
		return &lingeringConn{halfConn: half}, nil
	}
	return c, err
}
