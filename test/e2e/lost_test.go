package e2e

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/test/testenv"
)

const lostStock = 3000

// Redis is killed during purchases and starts again with the files of some seconds ago; backends are killed and paused
// while they rebuild it. Recovery needs no admin.
func TestRedisComesBackOlder(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(s *stack){
		"undisturbed":      func(*stack) {},
		"rebuilder killed": func(s *stack) { s.backends[0].crash() },
		"rebuilder paused": func(s *stack) {
			s.backends[0].Signal(syscall.SIGSTOP)
			time.AfterFunc(7*time.Second, func() { s.backends[0].Signal(syscall.SIGCONT) }) // longer than its lock lasts
		},
		"worker killed": func(s *stack) { s.workers[0].crash() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startStack(t, shape{backends: 2, workers: 2, journal: true})
			s.createSale("s", lostStock)
			buyers := hammer(s, "s", 8)
			buyers.await(500)
			files, older := filepath.Join(s.redis.Dir, "appendonlydir"), filepath.Join(t.TempDir(), "older")
			copyDir(t, files, older)
			buyers.await(1250)
			s.redis.Kill()
			if err := os.RemoveAll(files); err != nil {
				t.Fatal(err)
			}
			copyDir(t, older, files)
			s.redis.Start()
			began := time.Now()
			trouble(s)
			at := buyers.accepted.Load()
			buyers.await(at + 100)
			t.Logf("sold again %v after Redis was back", time.Since(began).Round(time.Millisecond))
			buyers.check("s", lostStock)
		})
	}
}

func TestRedisIsEmptied(t *testing.T) {
	t.Parallel()
	s := startStack(t, shape{backends: 2, workers: 2, journal: true})
	s.createSale("s", lostStock)
	buyers := hammer(s, "s", 8)
	for _, n := range []int64{500, 1750} {
		buyers.await(n)
		s.redis.Client().FlushAll(t.Context())
	}
	buyers.check("s", lostStock)
}

// The processes reach Redis through a name whose address changes: first the master, then a replica that had stopped
// replicating.
func TestReplicaIsPromoted(t *testing.T) {
	t.Parallel()
	master := testenv.StartRedis(t)
	_, port, _ := net.SplitHostPort(master.Addr)
	replica := testenv.StartRedis(t, "--replicaof", "127.0.0.1 "+port)
	name := newName(t, master.Addr)
	s := startStack(t,
		shape{backends: 2, workers: 2, journal: true, redis: master, redisURL: "redis://" + name.addr + "/0"})
	s.createSale("s", lostStock)
	buyers := hammer(s, "s", 8)
	buyers.await(400)
	testenv.Eventually(t, time.Minute, "a replica that follows", func() bool {
		return strings.Contains(replica.Client().Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	// from here on disconnected from its master, as by a network fault
	if err := replica.Client().ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	buyers.await(1250)
	name.move(replica.Addr)
	began := time.Now()
	at := buyers.accepted.Load()
	buyers.await(at + 100)
	t.Logf("sold again %v after the failover", time.Since(began).Round(time.Millisecond))
	buyers.check("s", lostStock)
}

// name is an address that forwards connections to one server, and after a move, which cuts them, to another.
type name struct {
	addr string

	mu    sync.Mutex
	to    string
	conns []net.Conn
}

func newName(t *testing.T, to string) *name {
	t.Helper()
	n := &name{to: to}
	n.addr = testenv.ServeTCP(t, n.forward)
	return n
}

func (n *name) forward(in net.Conn) {
	n.mu.Lock()
	out, err := net.Dial("tcp", n.to)
	if err == nil {
		n.conns = append(n.conns, in, out)
	}
	n.mu.Unlock()
	if err != nil {
		return
	}
	defer out.Close()
	go func() { _, _ = io.Copy(in, out); in.Close() }()
	_, _ = io.Copy(out, in)
}

func (n *name) move(to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.to = to
	for _, c := range n.conns {
		c.Close()
	}
	n.conns = nil
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-r", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
}
