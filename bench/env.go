package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"sluice/internal/unixsocket"
	"sluice/test/testenv"
)

// stage holds everything that a contest has started and must stop. It implements testenv.TB and is safe for concurrent
// use. A failed start ends the program.
type stage struct {
	mu      sync.Mutex
	cleanup []func()
}

// Helper is for tests; here it does nothing.
func (*stage) Helper() {}

// Fatalf stops everything and ends the program.
func (s *stage) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
	s.clear()
	os.Exit(1)
}

// check ends the program if err is not nil.
func (s *stage) check(err error) {
	if err != nil {
		s.Fatalf("%v", err)
	}
}

// Cleanup registers f to run at the end, last one first.
func (s *stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanup = append(s.cleanup, f)
}

// TempDir returns a directory that is removed at the end. Servers that drop root privileges can read it.
func (s *stage) TempDir() string {
	dir, err := os.MkdirTemp("", "sluice-bench-")
	s.check(err)
	s.check(os.Chmod(dir, 0o755))
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// clear stops and removes everything. The stage can be used again.
func (s *stage) clear() {
	for {
		s.mu.Lock()
		n := len(s.cleanup)
		if n == 0 {
			s.mu.Unlock()
			return
		}
		f := s.cleanup[n-1]
		s.cleanup = s.cleanup[:n-1]
		s.mu.Unlock()
		f()
	}
}

// scene returns a stage that is cleared with s at the latest.
func (s *stage) scene() *stage {
	scene := &stage{}
	s.Cleanup(scene.clear)
	return scene
}

// start runs a program and stops it with SIGTERM at the end.
func (s *stage) start(env []string, name string, args ...string) *testenv.Program {
	p := testenv.Launch(s, name, env, args...)
	s.Cleanup(func() { p.End(syscall.SIGTERM) })
	return p
}

// server is where a program listens, and its process.
type server struct {
	addr string
	pid  int
}

// serve starts a program and waits until it answers on addr.
func (s *stage) serve(addr string, env []string, name string, args ...string) server {
	p := s.start(env, name, args...)
	s.check(await(p, addr))
	return server{addr, p.Pid()}
}

// await waits until a program answers HTTP requests on addr, host:port or unix:/path. If it exits first, the error
// holds its output.
func await(p *testenv.Program, addr string) error {
	network, to := unixsocket.Network(addr)
	return until(p, "answer on "+addr, func() bool {
		c, err := net.DialTimeout(network, to, time.Second)
		if err != nil {
			return false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
		_, err = http.ReadResponse(bufio.NewReader(c), nil) //nolint:bodyclose // closed with its connection
		return err == nil
	})
}

// until waits for 20 seconds until a program is ready. what names that in the error, which holds the program's output.
func until(p *testenv.Program, what string, ready func() bool) error {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		if ready() {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("a program exited at start:\n%s", p.Output())
		default:
		}
	}
	return fmt.Errorf("a program does not %s:\n%s", what, p.Output())
}

// nginx starts nginx with a configuration file in dir, which listens on addr.
func (s *stage) nginx(addr, dir, conf string, env ...string) server {
	path := filepath.Join(dir, "nginx.conf")
	s.check(os.WriteFile(path, []byte(conf), 0o644))
	return s.serve(addr, env, testenv.Find(s, "nginx", "nginx-light"), "-p", dir, "-c", path)
}

// root returns the directory of the module under test: this program runs in bench/.
func (s *stage) root() string {
	dir, err := filepath.Abs("..")
	s.check(err)
	return dir
}

// build makes the sluice program, as `make build` does, and returns its path.
func (s *stage) build() string { return s.buildOf(s.root()) }

// buildOf makes the sluice program of another working tree.
func (s *stage) buildOf(root string) string {
	bin := filepath.Join(s.TempDir(), "sluice")
	s.tool(root, "build", "-trimpath", "-pgo=cmd/sluice/release.pgo", "-o", bin, "./cmd/sluice")
	return bin
}

// builds makes the sluice program, and that of another working tree unless its root is empty.
func (s *stage) builds(against string) (bins []string) {
	bins = append(bins, s.build())
	if against != "" {
		root, err := filepath.Abs(against)
		s.check(err)
		bins = append(bins, s.buildOf(root))
	}
	return bins
}

// tool runs the go command in dir.
func (s *stage) tool(dir string, args ...string) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
