package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

func TestOpenErrorIsOneLineWithoutThePassword(t *testing.T) {
	closed := testenv.FreePort(t)
	dir := t.TempDir()
	notADatabase := filepath.Join(dir, "text")
	if err := os.WriteFile(notADatabase, []byte(strings.Repeat("this is not a database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	bare, err := url.Parse(storetest.BarePostgres(t))
	if err != nil {
		t.Fatal(err)
	}
	noDatabase, noRole := *bare, *bare
	noDatabase.Path, noRole.User = "/absent", url.UserPassword("absent", "s3cret")
	for _, c := range []struct {
		url  string
		want string // a part of the message
		bad  bool   // *URLError; otherwise sale.ErrUnavailable
	}{
		{"", "must begin with postgres:// or sqlite:", true},
		{"mysql://sluice:s3cret@db/orders", "must begin with", true},
		{"host=db password=s3cret", "must begin with", true},
		{"postgres://sluice:s3cret/x@db/orders", "must look like", true},
		{"postgres://sluice:s3cret%zz@db/orders", "must look like", true},
		{"postgres://sluice:x@s3cret@127.0.0.1:5432/orders", "must look like", true},
		{"postgres://sluice:x@s3cret,y@127.0.0.1:5432/orders", "must look like", true},
		{"postgres://sluice:s3cret@db:s3cret/orders", "must look like", true},
		{"postgres://sluice:s3cret@db/orders?sslmode=s3cret", "must look like", true},
		{"postgres://sluice:s3cret@db/orders?pool_max_conns=s3cret", "must look like", true},
		{"postgres://sluice@db/orders?password=s3cret&connect_timeout=x", "must look like", true},
		{"postgres://sluice@db/orders?password=s3cret&pool_mode=s3cret", "pool_mode must be session or transaction", true},
		{fmt.Sprintf("postgres://sluice:s3cret@127.0.0.1:%d/orders", closed), "refused", false},
		{fmt.Sprintf("postgres://sluice:s3cret@127.0.0.1:%d,127.0.0.1:%d/orders", closed, closed), "refused", false},

		{noDatabase.String(), `database "absent" does not exist: correct`, true},
		{noRole.String(), `role "absent" does not exist: correct`, true},

		{"sqlite:", "must name a file", true},
		{"sqlite:///", "must name a file", true},
		{"sqlite:/some/dir/", "must name a file", true},
		{"sqlite://orders.db", "three slashes", true},
		{"sqlite://user:s3cret@host/orders.db", "three slashes", true},
		{"sqlite::memory:", "needs a file", true},
		{"sqlite:orders.db?mode=memory", "no parameters", true},
		{"sqlite:%zz", "%XX", true},
		{"sqlite://" + dir + "/absent/orders.db", "/absent does not exist: create it", true},
		{"sqlite://" + dir, "is a directory: name a file", true},
		{"sqlite://" + notADatabase, "is not an SQLite database: name another file", true},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err := store.Open(ctx, c.url, store.Config{})
		cancel()
		if err == nil {
			t.Errorf("%q: opened without an error", c.url)
			continue
		}
		if text := err.Error(); !strings.Contains(text, c.want) || strings.ContainsAny(text, "\n\t") ||
			strings.Contains(text, "s3cret") {
			t.Errorf("%q: %q, want one line with %q and no password", c.url, text, c.want)
		}
		var bad *store.URLError
		if errors.As(err, &bad) != c.bad || errors.Is(err, sale.ErrUnavailable) == c.bad {
			t.Errorf("%q: URLError: want %v, got %v", c.url, c.bad, err)
		}
	}
}

// A process that waits for its database opens it again and again.
func TestFailedOpenLeavesNoGoroutine(t *testing.T) {
	url := fmt.Sprintf("postgres://sluice@127.0.0.1:%d/orders", testenv.FreePort(t))
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine remains
		for _, cfg := range []store.Config{{}, {Existing: true}} {
			if _, err := store.Open(t.Context(), url, cfg); !errors.Is(err, sale.ErrUnavailable) {
				t.Error(err)
			}
		}
		if err := store.Probe(t.Context(), url); !errors.Is(err, sale.ErrUnavailable) {
			t.Error(err)
		}
	})
}

// A lock file that can never be opened is an error, so that a start does not wait for it.
func TestExclusiveFileNeedsItsLockFile(t *testing.T) {
	url := storetest.SQLite(t)
	lock := strings.TrimPrefix(url, "sqlite:") + ".lock"
	if err := os.Mkdir(lock, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := store.Open(t.Context(), url, store.Config{Exclusive: true})
	if _, bad := errors.AsType[*store.URLError](err); !bad || !strings.Contains(err.Error(), "is a directory") ||
		!strings.Contains(err.Error(), filepath.Base(lock)) {
		t.Errorf("%v, want a URLError that names the lock file", err)
	}
}

// Two processes that each have a Redis of their own cannot sell from one SQLite file.
func TestExclusiveFileIsOpenedOnce(t *testing.T) {
	url := storetest.SQLite(t)
	first, err := store.Open(t.Context(), url, store.Config{Exclusive: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), url, store.Config{Exclusive: true}); err == nil {
		t.Error("opened twice")
	} else if _, bad := errors.AsType[*store.URLError](err); !bad || !strings.Contains(err.Error(), "--redis") {
		t.Errorf("%v, want a URLError with the remedy", err)
	}
	shared, err := store.Open(t.Context(), url, store.Config{}) // by a command
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(shared.Close(), first.Close()); err != nil {
		t.Fatal(err)
	}
	again, err := store.Open(t.Context(), url, store.Config{Exclusive: true})
	if err != nil {
		t.Fatalf("after it was closed: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestSQLiteFileIsPrivate(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for url, path := range map[string]string{
		"sqlite:rel.db":                            "rel.db",
		"sqlite://" + dir + "/abs.db":              "abs.db",
		"sqlite:" + dir + "/one.db":                "one.db",
		"sqlite:odd%3F%23%25%20n%C3%A4me%20100%25": "odd?#% näme 100%",
	} {
		s := storetest.Open(t, url)
		if _, err := s.CreateSale(context.Background(), storetest.Sale("s", 1)); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: the file mode is %s", url, info.Mode())
		}
	}
}

// A command of an admin opens only the database of a running deployment. It creates no file and no table, and changes
// no other database.
func TestOpenExistingChangesNothing(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return "sqlite://" + filepath.Join(dir, name) }
	for name, content := range map[string]string{"empty.db": "", "text.db": strings.Repeat("no database\n", 100)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	storetest.Exec(t, file("foreign.db"), "CREATE TABLE orders (id integer)")
	bare, columns, types := storetest.BarePostgres(t), storetest.BarePostgres(t), storetest.BarePostgres(t)
	absent, err := url.Parse(bare)
	if err != nil {
		t.Fatal(err)
	}
	absent.Path = "/absent"
	for foreign, counters := range map[string]string{columns: "(id integer)", types: "(name integer, n integer)"} {
		storetest.Exec(t, foreign, "CREATE TABLE goose_db_version (version_id bigint)")
		storetest.Exec(t, foreign, "CREATE TABLE counters "+counters)
	}
	const newer = "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true)"
	const none = "it has no tables of a running deployment: name the database of the backends"
	for _, c := range []struct {
		name, url, before, want string
	}{
		{"missing", file("absent.db"), "", "absent.db does not exist: name the database of the backends"},
		{"missing directory", file("absent/orders.db"), "", "orders.db does not exist"},
		{"empty file", file("empty.db"), "", none},
		{"text", file("text.db"), "", none},
		{"of another program", file("foreign.db"), "", none},
		{"PostgreSQL without tables", bare, "", none},
		{"unused SQLite", storetest.SQLite(t), "", none},
		{"unused PostgreSQL", storetest.Postgres(t), "", none},
		{"old SQLite", storetest.SQLite(t), "DELETE FROM goose_db_version WHERE version_id > 8", "are of version 8"},
		{"old PostgreSQL", storetest.Postgres(t), "DELETE FROM goose_db_version WHERE version_id > 8", "are of version 8"},
		{"newer SQLite", storetest.SQLite(t), newer, "are of version 99"},
		{"newer PostgreSQL", storetest.Postgres(t), newer, "are of version 99"},
		{"missing PostgreSQL", absent.String(), "", "it does not exist: name the database of the backends"},
		{"PostgreSQL with other columns", columns, "", none},
		{"PostgreSQL with other types", types, "", none},
		{"directory", "sqlite://" + dir, "", "is not a file: name the database of the backends"},
	} {
		if c.before != "" {
			claim(t, c.url)
			storetest.Exec(t, c.url, c.before)
		}
		path, isFile := strings.CutPrefix(c.url, "sqlite://")
		before, _ := os.ReadFile(path)
		_, err := store.Open(t.Context(), c.url, store.Config{Existing: true})
		var bad *store.URLError
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		} else if errors.As(err, &bad) != (c.before == "") || errors.Is(err, sale.ErrUnavailable) {
			t.Errorf("%s: %v is of the wrong type, or wraps ErrUnavailable", c.name, err)
		}
		if after, _ := os.ReadFile(path); isFile && !bytes.Equal(before, after) {
			t.Errorf("%s: the file changed from %d to %d bytes", c.name, len(before), len(after))
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 3 {
		t.Errorf("files %v, %v", files, err)
	}
	storetest.Exec(t, bare, "CREATE TABLE goose_db_version (n integer)") // fails if Open has created it
	for _, url := range []string{storetest.SQLite(t), storetest.Postgres(t), storetest.PgBouncer(t)} {
		claim(t, url)
		if err := open(t, url, store.Config{Existing: true}).Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Only an admin can grant a role the rights to migrate. The process therefore fails instead of waiting for them.
func TestMissingPermissionToMigrateIsNotWaitedFor(t *testing.T) {
	bare := storetest.BarePostgres(t)
	storetest.Exec(t, bare, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	role := fmt.Sprintf("weak_%d", time.Now().UnixNano())
	storetest.Exec(t, bare, "CREATE ROLE "+role+" LOGIN PASSWORD 'pw'")
	t.Cleanup(func() { storetest.Exec(t, bare, "DROP ROLE "+role) })
	u, err := url.Parse(bare)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "pw")
	_, err = store.Open(t.Context(), u.String(), store.Config{})
	var bad *store.URLError
	const want = "permission denied for schema public: the tables cannot be migrated: make the user the owner"
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want a URLError with %q", err, want)
	}
}

// Only an admin can turn on TLS at a server. The process therefore fails instead of waiting for it.
func TestServerWithoutTLSIsNotWaitedFor(t *testing.T) {
	plain := storetest.BarePostgres(t)
	for _, mode := range []string{"require", "verify-full"} {
		for _, cfg := range []store.Config{{}, {Existing: true}} {
			_, err := store.Open(t.Context(), withTLS(t, plain, mode), cfg)
			const want = "the server refused TLS, which sslmode of the URL requires: turn on ssl in its postgresql.conf"
			if bad, ok := errors.AsType[*store.URLError](err); !ok || errors.Is(err, sale.ErrUnavailable) ||
				!strings.Contains(bad.Error(), want) {
				t.Errorf("%s, %+v: %v, want a URLError: %s", mode, cfg, err, want)
			}
		}
	}
	open(t, withTLS(t, plain, "prefer"), store.Config{})
	_, err := store.Open(t.Context(), "postgres://sluice@"+refuseTLS(t)+"/x?sslmode=prefer", store.Config{})
	if !errors.Is(err, sale.ErrUnavailable) {
		t.Errorf("a server that closes the connection after refusing TLS: %v, want ErrUnavailable", err)
	}
}

// If one of several hosts refuses TLS, a process continues to wait for the others.
func TestHostWithoutTLSIsFatalOnlyIfAllRefuse(t *testing.T) {
	plain, down := refuseTLS(t), fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	for hosts, fatal := range map[string]bool{
		plain + "," + down: false, down + "," + plain: false, plain + "," + plain: true,
	} {
		_, err := store.Open(t.Context(), "postgres://sluice@"+hosts+"/x?sslmode=require", store.Config{})
		var bad *store.URLError
		if errors.As(err, &bad) != fatal || errors.Is(err, sale.ErrUnavailable) == fatal {
			t.Errorf("%s: %v, want a URLError: %v", hosts, err, fatal)
		}
	}
}

// If one of several hosts rejects the user, a process continues to wait for the others.
func TestHostThatRejectsTheUserIsFatalOnlyIfAllDo(t *testing.T) {
	bare, err := url.Parse(storetest.BarePostgres(t))
	if err != nil {
		t.Fatal(err)
	}
	rejects, down := bare.Host, fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(t))
	for hosts, fatal := range map[string]bool{
		rejects + "," + down: false, down + "," + rejects: false, rejects + "," + rejects: true,
		rejects + "," + refuseTLS(t): false, // which closes the connection without TLS
	} {
		_, err := store.Open(t.Context(), "postgres://absent@"+hosts+bare.Path, store.Config{})
		var bad *store.URLError
		if errors.As(err, &bad) != fatal || errors.Is(err, sale.ErrUnavailable) == fatal {
			t.Errorf("%s: %v, want a URLError: %v", hosts, err, fatal)
		}
	}
}

// refuseTLS returns the address of a server that refuses TLS, and closes the connection without it.
func refuseTLS(t *testing.T) string {
	t.Helper()
	return testenv.ServeTCP(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 8))
		_, _ = c.Write([]byte("N"))
	})
}

// withTLS returns a URL with another sslmode.
func withTLS(t *testing.T, databaseURL, mode string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("sslmode", mode)
	u.RawQuery = query.Encode()
	return u.String()
}

func TestNewerTablesAreNotUsed(t *testing.T) {
	for _, url := range []string{storetest.SQLite(t), storetest.Postgres(t), storetest.PgBouncer(t)} {
		storetest.Open(t, url)
		storetest.Exec(t, url, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true)")
		_, err := store.Open(t.Context(), url, store.Config{})
		const want = "its tables are of version 99, and this program knows versions up to 15: use the program"
		if bad, ok := errors.AsType[*store.URLError](err); !ok || errors.Is(err, sale.ErrUnavailable) ||
			!strings.Contains(bad.Error(), want) {
			t.Errorf("%v, want a URLError: %s", err, want)
		}
	}
}

// claim records a number of shards, as every process of a deployment does.
func claim(t *testing.T, url string) {
	t.Helper()
	if _, _, err := storetest.Open(t, url).ClaimDeployment(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
}

func TestOpenConcurrently(t *testing.T) {
	pooled := testenv.PooledURL(t, testenv.SharedPostgres(t))
	for _, url := range []string{storetest.BareSQLite(t), storetest.BarePostgres(t), pooled} {
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				s, err := store.Open(t.Context(), url, store.Config{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := store.New(s).SaleSummaries(t.Context()); err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}

func TestReopenKeepsData(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		s := e.create(t, "s", 10)
		e.write(t, storetest.Orders("s", 4)...)
		again := open(t, e.url, store.Config{})
		again.wantRows(t, "s", 4)
		if now, _, err := again.Sale(e.ctx, "s"); err != nil || now != s {
			t.Fatalf("%+v, %v", now, err)
		}
		again.write(t, storetest.Orders("s", 4)...)
		e.wantRows(t, "s", 8)
	})
}

// A pooler in transaction mode rejects the timeouts that sluice sets for a connection.
func TestPoolerWithoutPoolModeIsExplained(t *testing.T) {
	url := strings.Replace(storetest.PgBouncer(t), "pool_mode=transaction", "pool_mode=session", 1)
	_, err := store.Open(t.Context(), url, store.Config{})
	probed := store.Probe(t.Context(), url)
	for _, err := range []error{err, probed} {
		if err == nil || !strings.Contains(err.Error(), "pool_mode=transaction in the database URL") {
			t.Errorf("got %v, want the parameter of the URL", err)
		}
	}
	if err := store.Probe(t.Context(), storetest.PgBouncer(t)); err != nil {
		t.Error(err)
	}
}
