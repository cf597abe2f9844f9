package testenv

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
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
	port := FreePort(t)
	r := &Redis{
		Addr: "127.0.0.1:" + strconv.Itoa(port),
		t:    t,
		bin:  Find(t, "redis-server", "redis-server"),
		Dir:  t.TempDir(),
	}
	r.URL = "redis://" + r.Addr + "/0"
	r.args = append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", r.Dir,
		"--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction",
		"--repl-diskless-sync-delay", "0", // a replica gets its data without the delay for further replicas
	}, args...)
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
	p, err := start(r.bin, nil, r.Dir, log, syscall.SIGKILL, r.args...)
	if err != nil {
		r.t.Fatalf("testenv: redis-server: %v", err)
	}
	r.proc = p
	if err := r.await(10 * time.Second); err != nil {
		r.t.Fatalf("testenv: redis-server does not answer: %v\n%s", err, tail(log))
	}
}

func (r *Redis) await(timeout time.Duration) error {
	c := redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: -1})
	defer c.Close()
	var err error
	for deadline := time.Now().Add(timeout); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = c.Ping(context.Background()).Err(); err == nil {
			return nil
		}
		select {
		case <-r.proc.done:
			return fmt.Errorf("it exited at start")
		default:
		}
	}
	return err
}

// Stop ends the server gracefully; it saves what it is configured to save.
func (r *Redis) Stop() { r.proc.end(syscall.SIGTERM) }

// Kill ends the server with SIGKILL.
func (r *Redis) Kill() { r.proc.end(syscall.SIGKILL) }

// Pause stops the server's clock: connections stay open and nothing answers, until Resume.
func (r *Redis) Pause() { _ = r.proc.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (r *Redis) Resume() { _ = r.proc.cmd.Process.Signal(syscall.SIGCONT) }
