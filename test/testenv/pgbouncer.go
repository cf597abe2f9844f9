package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// PgBouncer is a connection pooler in transaction mode in front of a PostgreSQL server. Transactions of a client
// alternate between all connections to the server, so a test detects code that relies on the state of a connection.
type PgBouncer struct{ port int }

var sharedPooler lasting[PgBouncer]

// PooledURL returns the URL of the same database through a PgBouncer, with pool_mode=transaction. For databases of
// SharedPostgres all tests of this process share one, which is stopped by Main; for others it ends with the test.
func PooledURL(t TB, p *Postgres) string {
	t.Helper()
	start := func(t TB) *PgBouncer { return startPgBouncer(t, p.port) }
	if p.proc != nil {
		return start(t).url("sluice")
	}
	sharedPooler.Lock()
	defer sharedPooler.Unlock()
	return sharedPooler.get(t, start).url(p.name)
}

func (b *PgBouncer) url(database string) string {
	return fmt.Sprintf("postgres://sluice@127.0.0.1:%d/%s?sslmode=disable&pool_mode=transaction", b.port, database)
}

func startPgBouncer(t TB, server int) *PgBouncer {
	t.Helper()
	binary, cred := Find(t, "pgbouncer", "pgbouncer"), unprivileged(t)
	b := &PgBouncer{port: FreePort(t)}
	dir := serverDir(t, "sluice-pgbouncer-", cred)
	settings := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d user=sluice
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
admin_users = sluice
pool_mode = transaction
default_pool_size = 8
max_client_conn = 1000
server_round_robin = 1
server_idle_timeout = 5
`, server, b.port)
	err := os.WriteFile(settings, []byte(text), 0o600)
	if err == nil && cred != nil {
		err = os.Chown(settings, int(cred.Uid), int(cred.Gid))
	}
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	cmd := exec.Command(binary, "-q", settings)
	cmd.Dir, cmd.SysProcAttr = dir, EndWithParent(syscall.SIGKILL, syscall.SysProcAttr{Credential: cred})
	proc, err := startServer(cmd, filepath.Join(dir, "pgbouncer.log"), b.ping)
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() { proc.end(syscall.SIGTERM) })
	return b
}

// ping reads from the console of PgBouncer, which needs no server.
func (b *PgBouncer) ping() error {
	config, err := pgx.ParseConfig(fmt.Sprintf("postgres://sluice@127.0.0.1:%d/pgbouncer?sslmode=disable", b.port))
	if err != nil {
		return err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}
