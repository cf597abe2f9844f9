package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

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

// startServer starts a server that writes to the file log, and waits until ping succeeds. The error has the end of the
// log.
func startServer(cmd *exec.Cmd, log string, ping func() error) (_ *process, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, tail(log))
		}
	}()
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
			p.kill()
			return nil, fmt.Errorf("the server does not answer: %w", err)
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

// end sends sig and waits for the process to end; after 40 seconds it is killed. A nil process has not started.
func (p *process) end(sig syscall.Signal) {
	if p == nil {
		return
	}
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
func unprivileged(t TB) *syscall.Credential {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 == nil && err2 == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: true}
		}
	}
	t.Fatalf("testenv: no unprivileged account found: create the account postgres")
	return nil
}

// serverDir creates a directory for a server that runs under an account; nil is that of this process. It is removed
// when the test ends.
func serverDir(t TB, prefix string, account *syscall.Credential) string {
	t.Helper()
	dir, err := os.MkdirTemp("", prefix)
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if account != nil {
			err = os.Chown(dir, int(account.Uid), int(account.Gid))
		}
	}
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	return dir
}

// tail returns the end of a file.
func tail(path string) string {
	b, _ := os.ReadFile(path)
	if len(b) > 2000 {
		b = b[len(b)-2000:]
	}
	return string(b)
}
