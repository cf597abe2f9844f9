package testenv

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// Program is a program under test, such as sluice: a process that a test starts, signals, kills and starts again.
// Output is safe for concurrent use; the other methods are not.
type Program struct {
	t           TB
	binary, dir string
	env, args   []string
	proc        *process
	out         Buffer
}

// Launch starts `binary args...` in its own directory with only PATH, HOME, TMPDIR and env in its environment, and
// kills it when the test ends. If the test has failed, the end of its output is logged.
func Launch(t TB, binary string, env []string, args ...string) *Program {
	t.Helper()
	p := &Program{t: t, binary: binary, args: args, dir: t.TempDir()}
	p.env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + temporary(t)}, env...)
	p.Start()
	t.Cleanup(func() {
		p.End(syscall.SIGKILL)
		if test, ok := t.(interface {
			Failed() bool
			Logf(format string, args ...any)
		}); ok && test.Failed() {
			test.Logf("--- %s\n%s", strings.Join(args, " "), lastLines(p.Output(), 30))
		}
	})
	return p
}

// lastLines returns the last n lines of text, so that the failure of a test is not lost between the outputs of its
// programs.
func lastLines(text string, n int) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(len(lines)-n, 0):], "")
}

// temporary returns a directory for temporary files, which a killed program leaves behind. It is not one of t.TempDir:
// workers of nginx run as another user, and the path of a Unix socket has at most 107 bytes.
func temporary(t TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice-test-")
	if err == nil {
		err = os.Chmod(dir, 0o711) //nolint:gosec // see above
	}
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Start starts it, again after End.
func (p *Program) Start() {
	p.t.Helper()
	cmd := exec.Command(p.binary, p.args...)
	cmd.Env, cmd.Dir = p.env, p.dir
	cmd.Stdout, cmd.Stderr = &p.out, &p.out
	// one signal for nginx and its workers
	cmd.SysProcAttr = EndWithParent(syscall.SIGKILL, syscall.SysProcAttr{Setpgid: true})
	var err error
	if p.proc, err = start(cmd); err != nil {
		p.t.Fatalf("testenv: %v", err)
	}
}

// Output returns the output so far, of both streams.
func (p *Program) Output() string { return p.out.String() }

// Pid returns the id of the process that was started last.
func (p *Program) Pid() int { return p.proc.cmd.Process.Pid }

// Done returns a channel that is closed when the process that was started last has ended.
func (p *Program) Done() <-chan struct{} { return p.proc.done }

// Signal sends sig and does not wait.
func (p *Program) Signal(sig syscall.Signal) { _ = p.proc.cmd.Process.Signal(sig) }

// End sends sig to the process (SIGKILL: to its children too), waits for it, and returns its exit code. One that has
// not ended after 40 seconds is killed; its code is then -1.
func (p *Program) End(sig syscall.Signal) int {
	switch {
	case p.proc.ended():
	case sig == syscall.SIGKILL:
		p.proc.kill()
	default:
		p.proc.end(sig)
	}
	return p.proc.cmd.ProcessState.ExitCode()
}

// Crash kills it and starts it again immediately.
func (p *Program) Crash() { p.End(syscall.SIGKILL); p.Start() }
