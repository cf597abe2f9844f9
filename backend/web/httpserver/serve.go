package httpserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Serve answers on ln until ctx ends, then drains: it accepts no more connections, ends event streams, answers
// waiting requests with the current state, finishes open requests, and returns nil. Requests that outlive the drain
// timeout cause an error. Serve closes ln. A Server serves once, on one listener.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	once := &closeOnce{Listener: ln}
	done := make(chan error, 1)
	go func() { done <- s.fiber.Server().Serve(lingering{retrying{once}}) }()
	select {
	case err := <-done:
		s.BeginDrain()
		_ = once.Close()
		return fmt.Errorf("httpserver: serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}

	// The order matters: long requests are stopped, then the listener is closed, then the remaining requests are
	// awaited. Closing the listener here as well covers a server that has not begun to listen yet.
	s.BeginDrain()
	_ = once.Close()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Drain)
	defer cancel()
	err := s.fiber.Server().ShutdownWithContext(limit)
	<-done
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("httpserver: drain %s: %w", ln.Addr(), err)
	}
	return nil
}

// closeOnce closes a listener once, although both Serve and fasthttp close it.
type closeOnce struct {
	net.Listener
	once sync.Once
	err  error
}

func (l *closeOnce) Close() error {
	l.once.Do(func() { l.err = l.Listener.Close() })
	return l.err
}

// retrying retries Accept after temporary errors: too many open files, or a client that disconnected before it was
// accepted. fasthttp would stop serving.
type retrying struct{ net.Listener }

func (l retrying) Accept() (net.Conn, error) {
	const first, longest = 5 * time.Millisecond, time.Second
	for pause := first; ; pause = min(2*pause, longest) {
		c, err := l.Listener.Accept()
		if err == nil || !temporary(err) {
			return c, err
		}
		time.Sleep(pause)
	}
}

func temporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
