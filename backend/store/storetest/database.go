package storetest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/test/testenv"

	"github.com/jackc/pgx/v5"
)

// SQLite returns the URL of a new SQLite database with empty tables. It is deleted when the test ends.
func SQLite(t testing.TB) string {
	t.Helper()
	emptySQLite.Lock()
	defer emptySQLite.Unlock()
	dir := testenv.MemoryDir(t)
	path := filepath.Join(dir, "orders.db")
	if emptySQLite.file == nil {
		makeTables(t, sqliteURL(dir))
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		emptySQLite.file = file
	} else if err := os.WriteFile(path, emptySQLite.file, 0o600); err != nil {
		t.Fatal(err)
	}
	return sqliteURL(dir)
}

// BareSQLite returns the URL of a new SQLite database without tables.
func BareSQLite(t testing.TB) string {
	t.Helper()
	return sqliteURL(testenv.MemoryDir(t))
}

// emptySQLite is a database file with empty tables, which is copied for each test: creating the tables takes about a
// second under the race detector.
var emptySQLite struct {
	sync.Mutex
	file []byte
}

// Postgres returns the URL of a new PostgreSQL database with empty tables. The calling package needs testenv.Main.
func Postgres(t testing.TB) string {
	t.Helper()
	return newPostgres(t).URL
}

// PgBouncer is Postgres behind a connection pooler in transaction mode.
func PgBouncer(t testing.TB) string {
	t.Helper()
	return testenv.PooledURL(t, newPostgres(t))
}

func newPostgres(t testing.TB) *testenv.Postgres {
	t.Helper()
	emptyPostgres.Lock()
	defer emptyPostgres.Unlock()
	if emptyPostgres.Postgres == nil {
		server := testenv.SharedPostgres(t)
		makeTables(t, server.URL)
		emptyPostgres.Postgres = server
	}
	return testenv.CopyShared(t, emptyPostgres.Postgres)
}

// BarePostgres returns the URL of a new PostgreSQL database without tables.
func BarePostgres(t testing.TB) string {
	t.Helper()
	return testenv.SharedPostgres(t).URL
}

// emptyPostgres is a database with empty tables, which is copied for each test.
var emptyPostgres struct {
	sync.Mutex
	*testenv.Postgres
}

func sqliteURL(dir string) string {
	return (&url.URL{Scheme: "sqlite", Path: filepath.Join(dir, "orders.db")}).String()
}

func makeTables(t testing.TB, databaseURL string) {
	t.Helper()
	s, err := store.Open(context.Background(), databaseURL, store.Config{Timeout: Timeout})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Elapse ends the holds of orders now, because a test cannot set the database's clock. Orders without a hold are not
// changed.
func Elapse(t testing.TB, databaseURL string, orders ...sale.Order) {
	t.Helper()
	ids := make([]string, len(orders))
	for i, o := range orders {
		ids[i] = o.ID.String()
	}
	Exec(t, databaseURL, "UPDATE orders SET due_at = created_at WHERE due_at IS NOT NULL AND id IN ("+strings.Join(ids,
		",")+")")
}

// Exec runs a statement that both engines support, on a connection of its own.
func Exec(t testing.TB, databaseURL, statement string) {
	t.Helper()
	ctx := context.Background()
	path, isFile := strings.CutPrefix(databaseURL, "sqlite:")
	if !isFile {
		db := Connect(t, databaseURL)
		defer db.Close(ctx)
		if _, err := db.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
		return
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, statement); err != nil {
		t.Fatal(err)
	}
}

// Connect returns a connection to a PostgreSQL database. It is closed when the test ends.
func Connect(t testing.TB, databaseURL string) *pgx.Conn {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Del("pool_mode") // a parameter of the store, which PostgreSQL does not know
	u.RawQuery = query.Encode()
	conn, err := pgx.Connect(context.Background(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// AwaitLocks returns when n statements in a PostgreSQL database wait for a lock.
func AwaitLocks(t testing.TB, databaseURL string, n int) {
	t.Helper()
	observer := Connect(t, databaseURL)
	testenv.Eventually(t, time.Minute, fmt.Sprint(n, " statements wait for a lock"), func() bool {
		return Waiting(t, observer) == n
	})
}

// Waiting returns the number of statements that wait for a lock. The connection must not be in a transaction, within
// which pg_stat_activity does not change.
func Waiting(t testing.TB, observer *pgx.Conn) (n int) {
	t.Helper()
	const waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
	if err := observer.QueryRow(context.Background(), waits).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
