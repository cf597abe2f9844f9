package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"sluice/backend/web/httpserver"
	"sluice/internal/loop"
	"sluice/internal/problem"
)

var errStarting = httpserver.NewProblem(problem.Unavailable, "The service is starting. Please try again.")

// startGrace is how long requests wait for the start before they get 503. A usual start is shorter. Then the server
// that answers 503 is never started, so stopping it does not delay the start.
const startGrace = 300 * time.Millisecond

// answerStarting answers requests at TCP listeners with 503, except /healthz, from startGrace on until stop is called.
// After stop, another server can use the listeners. Without answerStarting, clients would wait until the stores are
// available.
func answerStarting(ctx context.Context, log *slog.Logger, at ...net.Listener) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var serving sync.WaitGroup
	for _, ln := range at {
		s := httpserver.New(httpserver.Config{
			Checks:  []httpserver.Check{{Name: "start", Probe: func(context.Context) error { return errStarting }}},
			Problem: func(error) *httpserver.Problem { return errStarting }, // also instead of "not found"
			Drain:   time.Second,
			Log:     log,
		})
		s.Finish()
		serving.Go(func() {
			if loop.Sleep(ctx, startGrace); ctx.Err() == nil {
				_ = s.Serve(ctx, lentListener{ln.(*net.TCPListener)})
			}
		})
	}
	return func() {
		cancel()
		serving.Wait()
		for _, ln := range at {
			_ = ln.(*net.TCPListener).SetDeadline(time.Time{})
		}
	}
}

// lentListener is a listener that Close does not close: it ends Accept, and another server can use the listener.
type lentListener struct{ *net.TCPListener }

func (l lentListener) Accept() (net.Conn, error) {
	c, err := l.TCPListener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = net.ErrClosed
	}
	return c, err
}

func (l lentListener) Close() error { return l.SetDeadline(time.Unix(1, 0)) }
