package storetest

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"sluice/backend/store"
	"sluice/test/testenv"
)

// SQLite returns the URL of a new SQLite database with all tables and no rows, that goes when the test ends.
func SQLite(t testing.TB) string {
	t.Helper()
	emptySQLite.Lock()
	defer emptySQLite.Unlock()
	folder := newFolder(t)
	path := filepath.Join(folder, "orders.db")
	if emptySQLite.file == nil {
		makeTables(t, sqliteURL(folder))
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		emptySQLite.file = file
	} else if err := os.WriteFile(path, emptySQLite.file, 0o600); err != nil {
		t.Fatal(err)
	}
	return sqliteURL(folder)
}

// BareSQLite is SQLite without tables.
func BareSQLite(t testing.TB) string {
	t.Helper()
	return sqliteURL(newFolder(t))
}

// emptySQLite is a database file that has its tables: to make them takes SQLite a second under the race detector.
var emptySQLite struct {
	sync.Mutex
	file []byte
}

// Postgres returns the URL of a new PostgreSQL database with all tables and no rows. The calling package needs testenv.Main.
func Postgres(t testing.TB) string {
	t.Helper()
	emptyPostgres.Lock()
	defer emptyPostgres.Unlock()
	if emptyPostgres.Postgres == nil {
		server := testenv.SharedPostgres(t)
		makeTables(t, server.URL)
		emptyPostgres.Postgres = server
	}
	return testenv.CopyShared(t, emptyPostgres.Postgres).URL
}

// BarePostgres is Postgres without tables.
func BarePostgres(t testing.TB) string {
	t.Helper()
	return testenv.SharedPostgres(t).URL
}

// emptyPostgres is a database that has its tables.
var emptyPostgres struct {
	sync.Mutex
	*testenv.Postgres
}

func sqliteURL(folder string) string {
	return (&url.URL{Scheme: "sqlite", Path: filepath.Join(folder, "orders.db")}).String()
}

// newFolder is in memory where that is possible: a commit waits for the disk, and in these tests that proves nothing.
func newFolder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "sluice-orders-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

func makeTables(t testing.TB, databaseURL string) {
	t.Helper()
	s, err := store.Open(context.Background(), databaseURL, store.Config{})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}
