package testenv

import (
	"os"
	"slices"
	"sync"
)

// lasting is a server that all tests of this process share until the end of Main.
type lasting[S any] struct {
	sync.Mutex
	server *S // nil: it does not run
	life   untilMain
}

// get returns the server, and starts it first if it does not run. The caller holds the lock.
func (l *lasting[S]) get(t TB, start func(TB) *S) *S {
	if l.server == nil {
		l.life.TB = t // which fails if the server does not start
		l.server = start(&l.life)
	}
	return l.server
}

// end stops the server.
func (l *lasting[S]) end() {
	l.Lock()
	defer l.Unlock()
	l.life.end()
	l.server = nil
}

// untilMain is a TB. Its cleanups run, and its directories are deleted, at the end of Main.
type untilMain struct {
	TB

	cleanups []func()
}

// Cleanup postpones f until end.
func (u *untilMain) Cleanup(f func()) { u.cleanups = append(u.cleanups, f) }

// TempDir returns a directory that exists until end.
func (u *untilMain) TempDir() string {
	dir, err := os.MkdirTemp("", "sluice-test-")
	if err != nil {
		u.Fatalf("testenv: %v", err)
	}
	u.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (u *untilMain) end() {
	for _, f := range slices.Backward(u.cleanups) {
		f()
	}
	u.cleanups = nil
}
