package testenv

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// TestPortsOfOtherProcesses starts itself as another process, which tries to lock a port of this one.
func TestPortsOfOtherProcesses(t *testing.T) {
	const variable = "SLUICE_TEST_PORT"
	if text := os.Getenv(variable); text != "" {
		FreePort(t)
		port, err := strconv.Atoi(text)
		if err == nil {
			err = lockPort(port)
		}
		if !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EACCES) {
			t.Errorf("lock port %q: %v", text, err)
		}
		return
	}
	other := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	other.Env = append(os.Environ(), variable+"="+strconv.Itoa(FreePort(t)))
	if out, err := other.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
