package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"sluice/test/testenv"
)

// Status queries reach a streaming replica of the database. While the replica is down the primary answers them.
func TestStatusQueriesReadFromAReplica(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	primary := testenv.StartPostgres(t)
	replica := primary.Replica()
	s := startStack(t, shape{
		backends: 1, workers: 1, pg: primary, env: []string{"SLUICE_ORDERS_REPLICA_URL=" + replica.URL},
	})
	s.createSale("s", 10)
	bought := s.buy("s", "ann")
	if bought.Status != 202 {
		t.Fatalf("%d %s", bought.Status, bought.Body)
	}
	query := func(parameters string) answer {
		return do(t, "GET", s.base+"/v1/orders/"+bought.OrderID+parameters, s.token("ann"), "")
	}
	if o := query("?wait=30s"); o.State != "created" {
		t.Fatalf("%d %s", o.Status, o.Body)
	}
	sql, err := pgx.Connect(ctx, replica.URL)
	if err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "a status query reaches the replica", func() bool {
		if o := query(""); o.State != "created" {
			t.Fatalf("%d %s", o.Status, o.Body)
		}
		var n int
		err := sql.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity
			WHERE application_name = 'sluice' AND query LIKE '%FROM orders WHERE id %'`).Scan(&n)
		return err == nil && n > 0
	})
	_ = sql.Close(ctx)
	current := func(value string) func() bool {
		return func() bool {
			metrics := do(t, "GET", s.admin+"/metrics", adminToken, "")
			return strings.Contains(string(metrics.Body), "\nsluice_orders_replica_current "+value)
		}
	}
	testenv.Eventually(t, time.Minute, "the replica is current", current("1"))
	replica.Kill()
	for range 20 {
		if o := query(""); o.State != "created" {
			t.Fatalf("without the replica: %d %s", o.Status, o.Body)
		}
	}
	testenv.Eventually(t, time.Minute, "the replica is not current", current("0"))
	replica.Start()
	testenv.Eventually(t, time.Minute, "the replica is current again", current("1"))
}

func TestOrdersReplicaMustBePostgres(t *testing.T) {
	t.Parallel()
	env := []string{
		"SLUICE_TOKEN_SECRET=" + tokenSecret, "SLUICE_ADMIN_TOKEN=" + adminToken, "SLUICE_DATABASE_URL=sqlite:orders.db",
		"SLUICE_REDIS_URL=" + testenv.StartRedis(t).URL, "SLUICE_ORDERS_REPLICA_URL=postgres://127.0.0.1/sluice",
	}
	_, stderr, code := sluiceRun(t, env, "backend", "--listen", addr(t), "--admin", addr(t))
	if want := "--orders-replica: database URL: a replica requires"; code != 2 || !strings.Contains(stderr, want) {
		t.Errorf("exit %d, %q; want 2 and %q", code, stderr, want)
	}
}
