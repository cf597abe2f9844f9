package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"sluice/test/testenv"
)

// stage holds everything that a contest has started and must stop. It implements testenv.TB and is safe for
// concurrent use.
type stage struct {
	mu      sync.Mutex
	cleanup []func()
}

func newStage() *stage { return &stage{} }

// Helper is for tests; here it does nothing.
func (*stage) Helper() {}

// Fatalf stops everything and ends the program.
func (s *stage) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
	s.clear()
	os.Exit(1)
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
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		s.Fatalf("%v", err)
	}
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

// process is a program that was started; it dies with this one.
type process struct {
	cmd  *exec.Cmd
	log  string // path
	done chan struct{}
}

// start runs a program with its output in a file and stops it with SIGTERM at the end.
func (s *stage) start(dir string, env []string, name string, args ...string) (*process, error) {
	log := filepath.Join(s.TempDir(), filepath.Base(name)+".log")
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, log: log, done: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.done) }()
	s.Cleanup(p.stop)
	return p, nil
}

// stop sends SIGTERM and waits; after ten seconds the program is killed.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// await waits until a server listens on addr. If the program exits first, the error holds its output.
func (p *process) await(addr string) error {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if c, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			return c.Close()
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s exited at start:\n%s", p.cmd.Path, p.output())
		default:
		}
	}
	return fmt.Errorf("%s does not listen on %s:\n%s", p.cmd.Path, addr, p.output())
}

func (p *process) output() string {
	b, _ := os.ReadFile(p.log)
	return strings.TrimSpace(string(b[max(0, len(b)-2000):]))
}

func (s *stage) address() string {
	return "127.0.0.1:" + strconv.Itoa(testenv.FreePort(s))
}

// root returns the directory of the module under test.
func root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sluice").Output()
	if err != nil {
		return "", fmt.Errorf("where is the module sluice? run this in bench/: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// build makes the sluice program, as it is released, and returns its path.
func (s *stage) build(ctx context.Context) (string, error) {
	dir, err := root(ctx)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(s.TempDir(), "sluice")
	// as `make build` does
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-pgo=cmd/sluice/release.pgo", "-o", bin, "./cmd/sluice")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("build sluice: %w", err), errors.New(string(out)))
	}
	return bin, nil
}
