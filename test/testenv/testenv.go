// Package testenv starts the real servers that tests need: on loopback, on free ports, with a temporary directory
// each. It stops them by their process id. A server that is not installed fails the test with one line that names the
// package to install.
//
// A package with tests that call SharedPostgres or SharedRedisMasters must run them through Main, which stops the
// shared servers at the end.
package testenv

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Main runs the tests and then stops what they shared. Use it as: func TestMain(m *testing.M) {
// os.Exit(testenv.Main(m)) }.
func Main(m *testing.M) int {
	code := m.Run()
	stopPgBouncer()
	stopPostgres()
	stopRedisMasters()
	return code
}

// MainWithSluice is Main for a package in a directory of test/ that runs the command of this repository. It sets binary
// to the path of the command while the tests run.
func MainWithSluice(m *testing.M, binary *string) int {
	dir, err := os.MkdirTemp("", "sluice-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	root, _ := filepath.Abs("../..")
	if *binary, err = BuildSluice(root, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return Main(m)
}

// AwaitOK waits until a server answers a GET of url with 200.
func AwaitOK(t TB, url string) {
	t.Helper()
	Eventually(t, time.Minute, "200 from "+url, func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// TB is what is needed of a test; benchmarks that are programs bring their own.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// SocketPath returns a path for the socket of a backend, in a directory of its own that the workers of nginx may enter.
func SocketPath(t TB) string {
	t.Helper()
	return filepath.Join(temporary(t), "backend.sock")
}

// Eventually polls until is true, and fails the test when timeout passes first. what completes the sentence "never
// happened: ...". A stalled machine uses up little of the timeout: of the time between two polls, at most half a second
// counts.
func Eventually(t TB, timeout time.Duration, what string, is func() bool) {
	t.Helper()
	passed, last := time.Duration(0), time.Now()
	for !is() {
		if passed > timeout {
			t.Fatalf("within %s this never happened: %s", timeout, what)
		}
		time.Sleep(5 * time.Millisecond)
		now := time.Now()
		passed, last = passed+min(now.Sub(last), time.Second/2), now
	}
}

// MemoryDir returns a temporary directory, in memory if possible, so that commits do not wait for the disk. It is
// removed when the test ends.
func MemoryDir(t TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "sluice-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Find returns the path of a server binary, looking in PATH, in the places where Debian keeps daemons, and in the
// given patterns.
func Find(t TB, name, debianPackage string, patterns ...string) string {
	t.Helper()
	path, err := find(name, patterns...)
	if err != nil {
		t.Fatalf("%s is not installed: apt-get install %s", name, debianPackage)
	}
	return path
}

func find(name string, patterns ...string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, pattern := range append(patterns, "/usr/sbin/"+name, "/usr/local/sbin/"+name) {
		found, _ := filepath.Glob(pattern)
		sort.Strings(found)
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%s not found", name)
}

// process is a child process that ends with the test process.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func start(cmd *exec.Cmd) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.done) }()
	return p, nil
}

// startTimeout bounds the start of a server and the statements that create a database. A busy disk takes seconds.
const startTimeout = time.Minute

// startServer starts a server that writes to the file log, and waits until ping succeeds.
func startServer(cmd *exec.Cmd, log string, ping func() error) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	p, err := start(cmd)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(5 * time.Millisecond) {
		if err = ping(); err == nil {
			return p, nil
		}
		if p.ended() {
			return nil, errors.New("the server exited at start")
		}
		if time.Now().After(deadline) {
			return p, fmt.Errorf("the server does not answer: %w", err)
		}
	}
}

// Children returns the process ids of the children of a single-threaded process. It needs Linux.
func Children(pid int) (pids []int, err error) {
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil, err
	}
	for field := range strings.FieldsSeq(string(list)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, child)
	}
	return pids, nil
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end sends sig and waits for the process to end; after 40 seconds it is killed.
func (p *process) end(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.done:
	case <-time.After(40 * time.Second):
		p.kill()
	}
}

// kill kills the process, and its children if it leads a group.
func (p *process) kill() {
	pid := p.cmd.Process.Pid
	if p.cmd.SysProcAttr.Setpgid {
		pid = -pid
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	<-p.done
}

// unprivileged is the account for servers that refuse to run as root; nil when this process is not root.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: true}, nil
		}
	}
	return nil, fmt.Errorf("no unprivileged account found: create the account postgres")
}

func tail(path string) string {
	b, _ := os.ReadFile(path)
	if len(b) > 2000 {
		b = b[len(b)-2000:]
	}
	return string(b)
}
