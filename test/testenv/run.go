package testenv

import (
	"context"
	"sync"
)

// Run runs a loop until stop is called or the test ends, and checks that it returns nil. stop waits for the loop.
func Run(t interface {
	TB
	Errorf(format string, args ...any)
}, loop func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- loop(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
