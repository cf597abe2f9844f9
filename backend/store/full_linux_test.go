package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
)

// While the disk is full, SQLite answers queries and rejects orders. The database is not ready then.
func TestFullDiskOfSQLiteIsReported(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=16m"); errors.Is(err, syscall.EPERM) {
		t.Skip("needs the right to mount")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	url := "sqlite://" + filepath.Join(dir, "orders.db")
	e := open(t, url, store.Config{})
	e.create(t, "s", 1000)
	check := func(when string, want error) {
		t.Helper()
		if err := e.Ping(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: ping: %v, want %v", when, err, want)
		}
		if err := store.Probe(t.Context(), url); !errors.Is(err, want) {
			t.Errorf("%s: probe: %v, want %v", when, err, want)
		}
	}
	check("with free space", nil)
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 32<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a file that is larger than the disk: %v", err)
	}
	if err := e.Write(t.Context(), storetest.Orders("s", 1000)); !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("on a full disk: %v", err)
	}
	check("on a full disk", store.ErrFull)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	check("with free space again", nil)
}
