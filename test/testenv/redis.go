package testenv

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/redisconn"
)

// OpenPatient opens a client by the URL of a Redis, for tests that wait for no timeout: a command waits for a minute,
// unless its context ends, so that a busy machine does not make it fail. The client is closed when the test ends.
func OpenPatient(t TB, url string) redisconn.Client {
	t.Helper()
	c, err := redisconn.Open(url, redisconn.Timeouts(time.Minute))
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Redis is a redis-server of the test's own. Its methods are not safe for concurrent use.
type Redis struct {
	URL  string // redis://127.0.0.1:port/0
	Addr string // 127.0.0.1:port
	Dir  string // where it keeps its files

	t    TB
	bin  string
	args []string
	proc *process

	paused, running bool
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

// StartReplica starts a Redis that follows the one at an address, and waits until it has all data.
func StartReplica(t TB, of string, args ...string) *Redis {
	t.Helper()
	host, port, _ := net.SplitHostPort(of)
	r := StartRedis(t, append([]string{"--replicaof", host + " " + port}, args...)...)
	c := r.Client()
	Eventually(t, time.Minute, "a replica that follows "+of, func() bool {
		return strings.Contains(c.Info(context.Background(), "replication").Val(), "master_link_status:up")
	})
	return r
}

// StartSentinel starts a Redis Sentinel that watches the master at an address, and waits until it knows the replicas.
// The Sentinel never considers a server down on its own: on a slow machine a second failover could otherwise start
// before the Sentinel knows a replica of the new master, which would then follow the wrong server. Failover starts one.
func StartSentinel(t TB, master string, replicas int) *Redis {
	t.Helper()
	host, port, _ := net.SplitHostPort(master)
	config := filepath.Join(t.TempDir(), "sentinel.conf") // the Sentinel rewrites it
	// The long failover-timeout keeps Sentinel from correcting replicas that follow the master through a proxy.
	text := fmt.Sprintf("sentinel monitor %[1]s %s %s 1\nsentinel down-after-milliseconds %[1]s 3600000\n"+
		"sentinel failover-timeout %[1]s 120000\n", SentinelMaster, host, port)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatalf("testenv: %v", err)
	}
	s := startRedis(t, filepath.Dir(config), config, "--sentinel")
	c := s.Client()
	Eventually(t, time.Minute, "a Sentinel that knows the replicas", func() bool {
		known, err := c.Do(context.Background(), "SENTINEL", "REPLICAS", SentinelMaster).Slice()
		return err == nil && len(known) == replicas
	})
	return s
}

// SentinelMaster is the name of the master that StartSentinel watches.
const SentinelMaster = "shop"

// Failover promotes a replica of a master that was killed, and returns the address of the new master.
func Failover(t TB, sentinel *Redis, killed string) string {
	t.Helper()
	c := sentinel.Client()
	ctx := context.Background()
	var next string
	Eventually(t, 60*time.Second, "another master", func() bool {
		addr, err := c.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", SentinelMaster).StringSlice()
		next = strings.Join(addr, ":")
		if err == nil && next != killed {
			return true
		}
		_ = c.Do(ctx, "SENTINEL", "FAILOVER", SentinelMaster).Err() // rejected while one is in progress
		return false
	})
	return next
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

// SocketURL returns the URL of a Redis that was started with "--unixsocket" and a path.
func SocketURL(path string) string { return "unix://" + path + "?db=0" }

// Client returns a client that is closed when the test ends.
func (r *Redis) Client() redisconn.Client {
	c := NewClient(r.Addr)
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// NewClient returns a client with the timeouts and retries of go-redis. The caller closes it.
//
//go:noinline
func NewClient(addr string) redisconn.Client { return redis.NewClient(&redis.Options{Addr: addr}) }

// NewOnceClient is NewClient without retries.
//
//go:noinline
func NewOnceClient(addr string) redisconn.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
}

// Start starts the server (again) on the same port and directory, and waits until it answers.
func (r *Redis) Start() {
	r.t.Helper()
	log := filepath.Join(r.Dir, "redis.log")
	cmd := exec.Command(r.bin, r.args...)
	cmd.Dir, cmd.SysProcAttr = r.Dir, EndWithParent(syscall.SIGKILL, syscall.SysProcAttr{})
	c := redis.NewClient(&redis.Options{Addr: r.Addr, MaxRetries: -1})
	defer c.Close()
	var err error
	r.proc, err = startServer(cmd, log, func() error { return c.Ping(context.Background()).Err() })
	if err != nil {
		r.t.Fatalf("testenv: %v", err)
	}
	r.running = true
}

// Stop ends the server gracefully; it saves what it is configured to save.
func (r *Redis) Stop() { r.proc.end(syscall.SIGTERM) }

// Kill ends the server with SIGKILL.
func (r *Redis) Kill() {
	r.proc.end(syscall.SIGKILL)
	r.running, r.paused = false, false
}

// Erase deletes the data of a server that does not run. A node of a cluster remains one.
func (r *Redis) Erase() {
	r.t.Helper()
	for _, name := range []string{"appendonlydir", "dump.rdb"} {
		if err := os.RemoveAll(filepath.Join(r.Dir, name)); err != nil {
			r.t.Fatalf("testenv: %v", err)
		}
	}
}

// Running reports whether the server was started and not killed since.
func (r *Redis) Running() bool { return r.running }

// Paused reports whether the server is paused.
func (r *Redis) Paused() bool { return r.paused }

// Pause stops the server's clock: connections stay open and nothing answers, until Resume.
func (r *Redis) Pause() {
	_ = r.proc.cmd.Process.Signal(syscall.SIGSTOP)
	r.paused = true
}

// Resume ends Pause.
func (r *Redis) Resume() {
	_ = r.proc.cmd.Process.Signal(syscall.SIGCONT)
	r.paused = false
}

// TrustForLimits makes edges trust the server for limits of the fleet, as if it had run for a long time.
func (r *Redis) TrustForLimits() {
	ctx := context.Background()
	info, err := r.Client().Info(ctx, "server").Result()
	if err != nil {
		r.t.Fatalf("testenv: redis-server: %v", err)
	}
	_, rest, _ := strings.Cut(info, "run_id:")
	run, _, _ := strings.Cut(rest, "\r\n")
	for tag := range 16 {
		key := fmt.Sprintf("sluice:limit:{%x}:start", tag)
		if err := r.Client().HSet(ctx, key, "run", run, "since", 1).Err(); err != nil {
			r.t.Fatalf("testenv: redis-server: %v", err)
		}
	}
}
