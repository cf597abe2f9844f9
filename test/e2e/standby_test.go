package e2e

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/test/testenv"
)

// A standby of PostgreSQL that lacks the last commits is promoted during a sale. An audit pauses the sale, a rebuild
// queues the lost orders again, and after a resumption the sale sells.
func TestPostgresStandbyIsPromoted(t *testing.T) {
	t.Parallel()
	const lost, orders = 200, "SELECT count(*) FROM orders"
	primary := testenv.StartPostgres(t)
	standby := primary.Replica()
	s := startStack(t, shape{backends: 2, workers: 2, pg: primary, env: []string{
		"SLUICE_DATABASE_URL=" + eitherURL(t, primary, standby),
	}})
	s.createSale("s", 100_000) // never sold out
	buyers := hammer(s, "s", 4)
	testenv.Eventually(
		t,
		time.Minute,
		"the standby has orders",
		func() bool { return queryNumber(t, standby, orders) >= 100 },
	)
	standby.Stop()
	had := queryNumber(t, primary, orders)
	testenv.Eventually(t, time.Minute, "commits that the standby lacks",
		func() bool { return queryNumber(t, primary, orders) >= had+lost })
	primary.Crash()
	buyers.await(buyers.accepted.Load() + 100) // without a database
	buyers.stop.Store(true)
	buyers.wg.Wait()
	accepted := buyers.accepted.Load()

	standby.Start()
	if queryNumber(t, standby, "SELECT pg_promote()::int") != 1 {
		t.Fatal("the standby is not promoted")
	}
	s.pg = standby
	run := func(args ...string) {
		t.Helper()
		if out, errOut, code := sluiceRun(t, append(s.env, "SLUICE_SERVER="+s.admin), args...); code != 0 {
			t.Fatalf("sluice %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errOut)
		}
	}
	testenv.Eventually(t, 3*time.Minute, "an audit pauses the sale", func() bool {
		return strings.Contains(string(do(t, "GET", s.base+"/v1/sales/s", "", "").Body), `"paused"`)
	})
	if n := queryNumber(t, standby, orders); n > accepted-lost {
		t.Fatalf("%d of %d orders are rows: no commit is lost", n, accepted)
	}
	run("sale", "rebuild", "--all")
	if r := s.settle("s", accepted); !r.Balanced || r.Dead != 0 {
		t.Fatalf("after the rebuild: %+v", r)
	}
	buyers.compare("s", "created")
	run("sale", "resume", "s")
	more := &crowd{s: s, buyer: func(hand, i int) string { return fmt.Sprintf("later%d-%d", hand, i) }}
	more.start("s", 4)
	more.await(50)
	more.stop.Store(true)
	more.wg.Wait()
	if r := s.settle("s", accepted+more.accepted.Load()); !r.Balanced || r.Dead != 0 {
		t.Errorf("after the resumption: %+v", r)
	}
	buyers.compare("s", "created")
	more.compare("s", "created")
}

// eitherURL returns a URL with which clients use the server that accepts writes.
func eitherURL(t *testing.T, a, b *testenv.Postgres) string {
	t.Helper()
	u, err := url.Parse(a.URL)
	if err != nil {
		t.Fatal(err)
	}
	other, err := url.Parse(b.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host += "," + other.Host
	parameters := u.Query()
	parameters.Set("target_session_attrs", "read-write")
	u.RawQuery = parameters.Encode()
	return u.String()
}

// queryNumber returns the number that a query has as its result.
func queryNumber(t *testing.T, p *testenv.Postgres, sql string) (n int64) {
	t.Helper()
	db, err := pgx.Connect(t.Context(), p.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(t.Context())
	if err := db.QueryRow(t.Context(), sql).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
