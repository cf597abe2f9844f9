package testenv

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// failing is a TB that fails without failing the test.
type failing struct{ TB }

func (failing) Fatalf(string, ...any) { runtime.Goexit() }

// A server that does not start leaves no directory behind, and is no obstacle to the cleanup of the test.
func TestFailedStartLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "initdb"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	life := &untilMain{TB: failing{t}}
	ended := make(chan bool, 1)
	go func() {
		started := false
		defer func() { ended <- started }()
		newPostgres(life)
		started = true
	}()
	if <-ended {
		t.Error("a server has started without its files")
	}
	life.end()
	if left, err := filepath.Glob(filepath.Join(dir, "sluice-*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	(&Redis{}).Kill()
}
