package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// PgBouncer is a connection pooler in transaction mode in front of a PostgreSQL server. Transactions of a client
// alternate between all connections to the server, so a test detects code that relies on the state of a connection.
type PgBouncer struct {
	port int
	dir  string
	proc *process
}

var sharedPooler struct {
	sync.Mutex
	server *PgBouncer
}

// PooledURL returns the URL of the same database through a PgBouncer, with pool_mode=transaction. For databases of
// SharedPostgres all tests of this process share one, which is stopped by Main; for others it ends with the test.
func PooledURL(t TB, p *Postgres) string {
	t.Helper()
	if p.proc != nil {
		b, err := startPgBouncer(p.port)
		if err != nil {
			t.Fatalf("testenv: %v", err)
		}
		t.Cleanup(b.stop)
		return b.url("sluice")
	}
	sharedPooler.Lock()
	defer sharedPooler.Unlock()
	if sharedPooler.server == nil {
		b, err := startPgBouncer(shared.server.port)
		if err != nil {
			t.Fatalf("testenv: %v", err)
		}
		sharedPooler.server = b
	}
	return sharedPooler.server.url(p.name)
}

func (b *PgBouncer) url(database string) string {
	return fmt.Sprintf("postgres://sluice@127.0.0.1:%d/%s?sslmode=disable&pool_mode=transaction", b.port, database)
}

func startPgBouncer(server int) (_ *PgBouncer, err error) {
	binary, err := find("pgbouncer")
	if err != nil {
		return nil, errors.New("PgBouncer is not installed: apt-get install pgbouncer")
	}
	b := &PgBouncer{}
	if b.port, err = freePort(); err != nil {
		return nil, err
	}
	cred, err := unprivileged()
	if err != nil {
		return nil, err
	}
	if b.dir, err = serverDir("sluice-pgbouncer-", cred); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(b.dir)
		}
	}()
	settings := filepath.Join(b.dir, "pgbouncer.ini")
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
	if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if cred != nil {
		if err := os.Chown(settings, int(cred.Uid), int(cred.Gid)); err != nil {
			return nil, err
		}
	}
	log := filepath.Join(b.dir, "pgbouncer.log")
	cmd := exec.Command(binary, "-q", settings)
	cmd.Dir, cmd.SysProcAttr = b.dir, EndWithParent(syscall.SIGKILL, syscall.SysProcAttr{Credential: cred})
	if b.proc, err = startServer(cmd, log, func() error { return b.ping() }); err != nil {
		return nil, fmt.Errorf("pgbouncer: %w\n%s", err, tail(log))
	}
	return b, nil
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

func (b *PgBouncer) stop() {
	b.proc.end(syscall.SIGTERM)
	_ = os.RemoveAll(b.dir)
}

func stopPgBouncer() {
	sharedPooler.Lock()
	defer sharedPooler.Unlock()
	if sharedPooler.server != nil {
		sharedPooler.server.stop()
		sharedPooler.server = nil
	}
}
