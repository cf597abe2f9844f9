package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Serve answers on ln until ctx ends, and then drains: it accepts no more, ends event streams, answers waits with what is known,
// finishes open requests, and returns nil. Requests that outlive the drain timeout make an error. It closes ln. An App is served
// once, on one listener.
func Serve(ctx context.Context, a *App, ln net.Listener) error {
	once := &closeOnce{Listener: ln}
	done := make(chan error, 1)
	go func() { done <- a.fiber.Server().Serve(lingering{patient{once}}) }()
	select {
	case err := <-done:
		a.stop()
		_ = once.Close()
		return fmt.Errorf("api: serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
	}

	// The order matters: first the requests that would not end by themselves are told, then nothing new comes in, then the rest
	// is waited for. Closing the listener here as well covers a server that has not begun to listen yet.
	a.stop()
	_ = once.Close()
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.drain)
	defer cancel()
	err := a.fiber.Server().ShutdownWithContext(limit)
	<-done
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("api: drain %s: %w", ln.Addr(), err)
	}
	return nil
}

// closeOnce closes a listener once: both Serve and fasthttp do it.
type closeOnce struct {
	net.Listener
	once sync.Once
	err  error
}

func (l *closeOnce) Close() error {
	l.once.Do(func() { l.err = l.Listener.Close() })
	return l.err
}

// patient keeps a server alive when accepting fails for now: too many open files, or a client gone before it was accepted. fasthttp
// would stop serving for good.
type patient struct{ net.Listener }

func (l patient) Accept() (net.Conn, error) {
	const first, most = 5 * time.Millisecond, time.Second
	for pause := first; ; pause = min(2*pause, most) {
		c, err := l.Listener.Accept()
		if err == nil || !passing(err) {
			return c, err
		}
		time.Sleep(pause)
	}
}

func passing(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
