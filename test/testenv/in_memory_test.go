package testenv

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A run of make test that was killed leaves its directory, and the next run removes it. It removes no directory of
// another program, and none that a process still uses, even if the shell of its run was killed.
func TestLeftoversOfAKilledRunAreRemoved(t *testing.T) {
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip(err)
	}
	shm := t.TempDir()
	inMemory := func(command string) *exec.Cmd {
		cmd := exec.Command("sh", "../../.ci/in-memory", "sh", "-c", command)
		cmd.Env = append(os.Environ(), "IN_MEMORY_DIR="+shm, "IN_MEMORY_ROOM=0")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd
	}
	// start starts a run and returns its directory, which looks like one of an hour ago.
	start := func() (dir string, run *exec.Cmd, input *os.File) {
		t.Helper()
		read, input, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		run = inMemory("echo $TMPDIR; read line <&3")
		run.ExtraFiles = []*os.File{read}
		out, err := run.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := run.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = syscall.Kill(-run.Process.Pid, syscall.SIGKILL), run.Wait() })
		_ = read.Close()
		line, err := bufio.NewReader(out).ReadString('\n')
		dir = strings.TrimSpace(line)
		if err != nil || filepath.Dir(dir) != shm {
			t.Fatalf("TMPDIR is %q, %v", dir, err)
		}
		hourAgo := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(dir, "sluice-run"), hourAgo, hourAgo); err != nil {
			t.Fatal(err)
		}
		return dir, run, input
	}
	// ended waits until no process of a run is left.
	ended := func(dir string) {
		t.Helper()
		lock, err := os.Open(filepath.Join(dir, "sluice-run"))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, dirs ...string) {
		t.Helper()
		if out, err := inMemory("true").CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%v: %s", err, out)
		}
		found, err := filepath.Glob(filepath.Join(shm, "*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) != len(dirs) {
			t.Errorf("%s: the directories are %q, want %q", when, found, dirs)
		}
		for _, dir := range dirs {
			if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %s was removed", when, dir)
			}
		}
	}

	foreign := filepath.Join(shm, "sABCD")
	if err := os.Mkdir(foreign, 0o700); err != nil {
		t.Fatal(err)
	}
	killed, run, _ := start()
	if err := syscall.Kill(-run.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended(killed)
	orphaned, run, input := start()
	if err := run.Process.Kill(); err != nil { // its command continues
		t.Fatal(err)
	}
	running, _, _ := start()
	want("a command of a killed run still runs", foreign, orphaned, running)

	_ = input.Close() // ends the command
	ended(orphaned)
	want("the command has ended", foreign, running)
}
