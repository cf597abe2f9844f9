package testenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Postgres is a PostgreSQL server. Its methods are not safe for concurrent use.
type Postgres struct {
	URL string // postgres://... of the database of this test

	t    TB
	name string // of the database, on the shared server
	port int
	dir  string
	bin  string
	cred *syscall.Credential
	args []string
	proc *process
}

var (
	sharedPostgres lasting[Postgres]
	sharedCount    atomic.Int64 // databases on it
)

// SharedPostgres returns a new, empty database on a server that all tests of this process share. It does not wait for
// the disk (fsync=off). The package needs TestMain, see Main.
func SharedPostgres(t TB) *Postgres {
	t.Helper()
	sharedPostgres.Lock()
	defer sharedPostgres.Unlock()
	sharedPostgres.get(t, func(t TB) *Postgres {
		return newPostgres(t, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	})
	return createShared(t, "template1")
}

// CopyShared returns a new database on the server of SharedPostgres with the contents of another one, which must not
// be in use meanwhile.
func CopyShared(t TB, of *Postgres) *Postgres {
	t.Helper()
	sharedPostgres.Lock()
	defer sharedPostgres.Unlock()
	return createShared(t, of.name)
}

// createShared is called with the lock.
func createShared(t TB, template string) *Postgres {
	t.Helper()
	server, name := sharedPostgres.server, "test_"+strconv.FormatInt(sharedCount.Add(1), 10)
	server.create(t, name+" TEMPLATE "+template)
	return &Postgres{URL: server.url(name), name: name, t: t, port: server.port, dir: server.dir}
}

// StartPostgres starts a server of the test's own, durable as PostgreSQL's defaults have it, with one empty database;
// args are options for postgres, such as "-c", "max_connections=20". It is stopped when the test ends.
func StartPostgres(t TB, args ...string) *Postgres {
	t.Helper()
	p := newPostgres(t, args...)
	p.name, p.URL = "sluice", p.Create("sluice")
	return p
}

// Create adds an empty database to a server of StartPostgres and returns its URL.
func (p *Postgres) Create(database string) (url string) {
	p.t.Helper()
	p.create(p.t, database)
	return p.url(database)
}

// create adds a database for a test; what is its name, and its template.
func (p *Postgres) create(t TB, what string) {
	t.Helper()
	if err := p.exec("CREATE DATABASE " + what); err != nil {
		t.Fatalf("testenv: create database: %v", err)
	}
}

// Replica starts a streaming replica of a server of StartPostgres, on a port of its own. It is stopped when the test
// ends.
func (p *Postgres) Replica() *Postgres {
	p.t.Helper()
	r := &Postgres{t: p.t, bin: p.bin, cred: p.cred, args: p.args}
	r.begin(Find(p.t, "pg_basebackup", "postgresql", postgresBin+"pg_basebackup"), "-R", "-X", "stream", "-c", "fast",
		"-d", p.url("postgres"))
	r.URL = r.url("sluice")
	return r
}

// Pid returns the process id of a server of StartPostgres; its processes are below it.
func (p *Postgres) Pid() int { return p.proc.cmd.Process.Pid }

// Start starts the server again after Stop or Kill. It retries while processes of a crashed server still hold its
// memory.
func (p *Postgres) Start() {
	p.t.Helper()
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		err := p.startOnce()
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "pre-existing shared memory block") || time.Now().After(deadline) {
			p.t.Fatalf("testenv: %v", err)
		}
		_ = os.Truncate(filepath.Join(p.dir, "postgres.log"), 0) // it has been read
	}
}

// Stop shuts the server down without waiting for its clients. Only for a server of StartPostgres.
func (p *Postgres) Stop() { p.proc.end(syscall.SIGINT) }

// Kill ends the server immediately, as a crash would: it recovers from its log at the next Start.
func (p *Postgres) Kill() { p.proc.end(syscall.SIGQUIT) }

// Crash ends the server and all its processes with SIGKILL, in any order.
func (p *Postgres) Crash() {
	pid := p.proc.cmd.Process.Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP) // it starts no more processes
	children, _ := Children(pid)
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	<-p.proc.done
}

const postgresBin = "/usr/lib/postgresql/*/bin/"

func newPostgres(t TB, args ...string) *Postgres {
	t.Helper()
	initdb := Find(t, "initdb", "postgresql", postgresBin+"initdb")
	p := &Postgres{t: t, bin: filepath.Join(filepath.Dir(initdb), "postgres"), cred: unprivileged(t), args: args}
	p.begin(initdb, "-U", "sluice", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")
	return p
}

// begin fills the directory of the server with a program, and starts the server until the end of the test.
func (p *Postgres) begin(program string, args ...string) {
	p.t.Helper()
	p.dir = serverDir(p.t, "sluice-pg-", p.cred)
	cmd := exec.Command(program, append(args, "-D", p.data(), "--no-sync")...)
	cmd.Dir, cmd.SysProcAttr = p.dir, &syscall.SysProcAttr{Credential: p.cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("testenv: %s: %v\n%s", filepath.Base(program), err, out)
	}
	p.port = FreePort(p.t)
	p.Start()
	p.t.Cleanup(func() { p.proc.end(syscall.SIGQUIT) })
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *Postgres) url(database string) string {
	return fmt.Sprintf("postgres://sluice@127.0.0.1:%d/%s?sslmode=disable", p.port, database)
}

// SocketURL returns the URL of the test's database over the Unix socket of the server.
func (p *Postgres) SocketURL() string {
	return fmt.Sprintf("postgres://sluice@/%s?host=%s&port=%d", p.name, p.dir, p.port)
}

func (p *Postgres) startOnce() (err error) {
	log := filepath.Join(p.dir, "postgres.log")
	args := append([]string{
		"-D", p.data(), "-p", strconv.Itoa(p.port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=" + p.dir, "-c", "max_connections=200",
	}, p.args...)
	cmd := exec.Command(p.bin, args...)
	cmd.Dir, cmd.SysProcAttr = p.dir, EndWithParent(syscall.SIGQUIT, syscall.SysProcAttr{Credential: p.cred})
	p.proc, err = startServer(cmd, log, func() error { return p.exec("SELECT 1") })
	return err
}

func (p *Postgres) exec(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.url("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}
