package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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

var shared struct {
	sync.Mutex
	server *Postgres
	count  atomic.Int64
}

// SharedPostgres returns a new, empty database on a server that all tests of this process share. It does not wait for
// the disk (fsync=off). The package needs TestMain, see Main.
func SharedPostgres(t TB) *Postgres {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		server, err := newPostgres("-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
		if err != nil {
			t.Fatalf("testenv: %v", err)
		}
		shared.server = server
	}
	return createShared(t, "template1")
}

// CopyShared returns a new database on the server of SharedPostgres with the contents of another one, which must not
// be in use meanwhile.
func CopyShared(t TB, of *Postgres) *Postgres {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	return createShared(t, of.name)
}

// createShared is called with the lock.
func createShared(t TB, template string) *Postgres {
	t.Helper()
	name := "test_" + strconv.FormatInt(shared.count.Add(1), 10)
	if err := shared.server.exec("CREATE DATABASE " + name + " TEMPLATE " + template); err != nil {
		t.Fatalf("testenv: create database: %v", err)
	}
	return &Postgres{URL: shared.server.url(name), name: name, t: t, port: shared.server.port, dir: shared.server.dir}
}

// StartPostgres starts a server of the test's own, durable as PostgreSQL's defaults have it, with one empty database;
// args are options for postgres, such as "-c", "max_connections=20". It is stopped when the test ends.
func StartPostgres(t TB, args ...string) *Postgres {
	t.Helper()
	p, err := newPostgres(args...)
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	p.t = t
	t.Cleanup(p.destroy)
	if err := p.exec("CREATE DATABASE sluice"); err != nil {
		t.Fatalf("testenv: create database: %v", err)
	}
	p.name, p.URL = "sluice", p.url("sluice")
	return p
}

// Create adds an empty database to a server of StartPostgres and returns its URL.
func (p *Postgres) Create(database string) (url string) {
	p.t.Helper()
	if err := p.exec("CREATE DATABASE " + database); err != nil {
		p.t.Fatalf("testenv: create database: %v", err)
	}
	return p.url(database)
}

// Replica starts a streaming replica of a server of StartPostgres, on a port of its own. It is stopped when the test
// ends.
func (p *Postgres) Replica() *Postgres {
	p.t.Helper()
	r, err := p.startReplica()
	if err != nil {
		p.t.Fatalf("testenv: replica: %v", err)
	}
	p.t.Cleanup(r.destroy)
	r.URL = r.url("sluice")
	return r
}

func (p *Postgres) startReplica() (_ *Postgres, err error) {
	r := &Postgres{t: p.t, bin: p.bin, cred: p.cred, args: p.args}
	if r.dir, err = serverDir("sluice-pg-", r.cred); err != nil {
		return nil, err
	}
	defer r.destroyAfter(&err)
	basebackup, err := find("pg_basebackup", postgresBin+"pg_basebackup")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(basebackup, "-D", r.data(), "-R", "-X", "stream",
		"-c", "fast", "--no-sync", "-d", p.url("postgres"))
	cmd.Dir, cmd.SysProcAttr = r.dir, &syscall.SysProcAttr{Credential: r.cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pg_basebackup: %w\n%s", err, out)
	}
	if r.port, err = freePort(); err != nil {
		return nil, err
	}
	return r, r.start()
}

// Pid returns the process id of a server of StartPostgres; its processes are below it.
func (p *Postgres) Pid() int { return p.proc.cmd.Process.Pid }

// Start starts the server again after Stop or Kill.
func (p *Postgres) Start() {
	p.t.Helper()
	if err := p.start(); err != nil {
		p.t.Fatalf("testenv: %v", err)
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

func newPostgres(args ...string) (_ *Postgres, err error) {
	initdb, err := find("initdb", postgresBin+"initdb")
	if err != nil {
		return nil, errors.New("PostgreSQL is not installed: apt-get install postgresql")
	}
	p := &Postgres{bin: filepath.Join(filepath.Dir(initdb), "postgres"), args: args}
	if p.cred, err = unprivileged(); err != nil {
		return nil, err
	}
	if p.dir, err = serverDir("sluice-pg-", p.cred); err != nil {
		return nil, err
	}
	defer p.destroyAfter(&err)
	cmd := exec.Command(initdb, "-D", p.data(), "-U", "sluice", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8",
		"--no-sync")
	cmd.Dir = p.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %v\n%s", err, out)
	}
	if p.port, err = freePort(); err != nil {
		return nil, err
	}
	return p, p.start()
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *Postgres) url(database string) string {
	return fmt.Sprintf("postgres://sluice@127.0.0.1:%d/%s?sslmode=disable", p.port, database)
}

// SocketURL returns the URL of the test's database over the Unix socket of the server.
func (p *Postgres) SocketURL() string {
	return fmt.Sprintf("postgres://sluice@/%s?host=%s&port=%d", p.name, p.dir, p.port)
}

// start starts the server, and repeats this while processes of a crashed server still hold its memory.
func (p *Postgres) start() error {
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(20 * time.Millisecond) {
		err := p.startOnce()
		if err == nil || !strings.Contains(err.Error(), "pre-existing shared memory block") || time.Now().After(deadline) {
			return err
		}
		_ = os.Truncate(filepath.Join(p.dir, "postgres.log"), 0) // it has been read
	}
}

func (p *Postgres) startOnce() error {
	log := filepath.Join(p.dir, "postgres.log")
	args := append([]string{
		"-D", p.data(), "-p", strconv.Itoa(p.port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=" + p.dir, "-c", "max_connections=200",
	}, p.args...)
	cmd := exec.Command(p.bin, args...)
	cmd.Dir, cmd.SysProcAttr = p.dir, EndWithParent(syscall.SIGQUIT, syscall.SysProcAttr{Credential: p.cred})
	var err error
	if p.proc, err = startServer(cmd, log, func() error { return p.exec("SELECT 1") }); err != nil {
		return fmt.Errorf("postgres: %w\n%s", err, tail(log))
	}
	return nil
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

func (p *Postgres) destroy() {
	p.proc.end(syscall.SIGQUIT)
	_ = os.RemoveAll(p.dir)
}

// destroyAfter destroys a server that could not be started.
func (p *Postgres) destroyAfter(err *error) {
	if *err != nil {
		p.destroy()
	}
}

func stopPostgres() {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.destroy()
		shared.server = nil
	}
}
