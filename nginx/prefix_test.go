package nginx

import (
	"errors"
	"os"
	"syscall"
	"testing"
)

// A cleaner of temporary directories locks each directory exclusively before it removes old files from it.
func TestDirectoriesOfAnEdgeAreLocked(t *testing.T) {
	p, err := openPrefix(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.keepPages(); err != nil {
		t.Fatal(err)
	}
	clean := func(path string) error {
		t.Helper()
		dir, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		return syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	paths := []string{p.dir}
	if p.pages != "" { // as root
		paths = append(paths, p.pages)
	}
	for _, path := range paths {
		if err := clean(path); !errors.Is(err, syscall.EWOULDBLOCK) {
			t.Errorf("a cleaner of %s: %v, want %v", path, err, syscall.EWOULDBLOCK)
		}
	}
	p.close()
	if err := clean(p.dir); err != nil {
		t.Errorf("a cleaner after the end: %v", err)
	}
}
