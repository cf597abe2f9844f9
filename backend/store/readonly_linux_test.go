package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// SQLite creates files beside the database. Only an admin can permit that, so the process fails instead of waiting.
func TestReadOnlyDirectoryIsNotWaitedFor(t *testing.T) {
	url := storetest.SQLite(t)
	path := strings.TrimPrefix(url, "sqlite://")
	dir := filepath.Dir(path)
	if err := errors.Join(os.Chmod(path, 0o666), os.Chmod(dir, 0o555)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o755) })
	if os.Geteuid() == 0 { // root may write anywhere
		runtime.LockOSThread() // the user of file operations is that of the thread
		defer runtime.UnlockOSThread()
		if err := syscall.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Setfsuid(0) }()
	}
	_, err := store.Open(t.Context(), url, store.Config{})
	const want = "no permission to write beside "
	if bad, ok := errors.AsType[*store.URLError](err); !ok || errors.Is(err, sale.ErrUnavailable) ||
		!strings.Contains(bad.Detail, want+path+": change") {
		t.Errorf("%v, want a URLError with %q", err, want)
	}
}
