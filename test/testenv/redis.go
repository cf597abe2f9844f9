package testenv

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a redis-server of the test's own. Its methods are not safe for concurrent use.
type Redis struct {
	URL  string // redis://127.0.0.1:port/0
	Addr string // 127.0.0.1:port
	Dir  string // where it keeps its files

	t    TB
	bin  string
	args []string
	proc *process
}

// StartRedis starts a redis-server without persistence, unless args enable it ("--appendonly", "yes"), and stops it
// when the test ends.
func StartRedis(t TB, args ...string) *Redis {
	t.Helper()
	return startRedis(t, t.TempDir(), append([]string{
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction",
		"--repl-diskless-sync-delay", "0", // a replica gets its data without the delay for further replicas
	}, args...)...)
}

// StartReplica starts a Redis that follows the one at an address, and waits until it has what that one holds.
func StartReplica(t TB, of string, args ...string) *Redis {
	t.Helper()
	host, port, _ := net.SplitHostPort(of)
	r := StartRedis(t, append([]string{"--replicaof", host + " " + port}, args...)...)
	c := r.Client()
	Eventually(t, 30*time.Second, "a replica that follows "+of, func() bool {
		return strings.Contains(c.Info(context.Background(), "replication").Val(), "master_link_status:up")
	})
	return r
}

// StartSentinel starts a Redis Sentinel with a configuration, which it rewrites, and stops it when the test ends.
func StartSentinel(t TB, config string) *Redis {
	t.Helper()
	return startRedis(t, filepath.Dir(config), config, "--sentinel")
}

func startRedis(t TB, dir string, args ...string) *Redis {
	t.Helper()
	port := strconv.Itoa(FreePort(t))
	r := &Redis{
		URL: "redis://127.0.0.1:" + port + "/0", Addr: "127.0.0.1:" + port, Dir: dir, t: t,
		bin: Find(t, "redis-server", "redis-server"), args: append(args, "--port", port, "--bind", "127.0.0.1"),
	}
	r.Start()
	t.Cleanup(r.Kill)
	return r
}

// Client returns a client that is closed when the test ends.
func (r *Redis) Client() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: r.Addr})
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// Start starts the server (again) on the same port and directory, and waits until it answers.
func (r *Redis) Start() {
	r.t.Helper()
	log := filepath.Join(r.Dir, "redis.log")
	cmd := exec.Command(r.bin, r.args...)
	cmd.Dir, cmd.SysProcAttr = r.Dir, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c := redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: -1})
	defer c.Close()
	var err error
	r.proc, err = startServer(cmd, log, func() error { return c.Ping(context.Background()).Err() })
	if err != nil {
		r.t.Fatalf("testenv: redis-server: %v\n%s", err, tail(log))
	}
}

// Stop ends the server gracefully; it saves what it is configured to save.
func (r *Redis) Stop() { r.proc.end(syscall.SIGTERM) }

// Kill ends the server with SIGKILL.
func (r *Redis) Kill() { r.proc.end(syscall.SIGKILL) }

// Pause stops the server's clock: connections stay open and nothing answers, until Resume.
func (r *Redis) Pause() { _ = r.proc.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (r *Redis) Resume() { _ = r.proc.cmd.Process.Signal(syscall.SIGCONT) }
