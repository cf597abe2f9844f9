package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// A server that does not start leaves no directory behind, and is no obstacle to the cleanup of the test.
func TestFailedStartLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, "initdb"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs)
	if _, err := newPostgres(); err == nil {
		t.Error("a server has started without its files")
	}
	if left, err := filepath.Glob(filepath.Join(dir, "sluice-*")); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	(&Redis{}).Kill()
}
