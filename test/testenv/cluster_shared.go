package testenv

import (
	"os"
	"slices"
	"sync"
)

// sharedMasters is the cluster of SharedRedisMasters.
var sharedMasters struct {
	sync.Mutex
	cluster *RedisCluster
	life    untilMain
}

// SharedRedisMasters returns a cluster of three masters without replicas that all tests of this process share. The
// package needs TestMain, see Main.
func SharedRedisMasters(t TB) *RedisCluster {
	t.Helper()
	s := &sharedMasters
	s.Lock()
	defer s.Unlock()
	if s.cluster == nil {
		s.life.TB = t // which fails if a node does not start
		s.cluster = StartRedisMasters(&s.life, 3)
	}
	return s.cluster
}

// stopRedisMasters stops the cluster of SharedRedisMasters.
func stopRedisMasters() {
	s := &sharedMasters
	s.Lock()
	defer s.Unlock()
	s.life.end()
	s.cluster = nil
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
