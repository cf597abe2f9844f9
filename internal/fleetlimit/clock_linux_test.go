package fleetlimit

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

const inNamespace = "SLUICE_TEST_TIME_NAMESPACE"

// The clock of leases counts the time for which the machine was suspended: other edges may spend slots meanwhile. Here
// a namespace adds that time.
func TestNowCountsSuspendedTime(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		if out, err := exec.Command("unshare", "--time", "--boottime", "1000", "true").CombinedOutput(); err != nil {
			t.Skipf("a time namespace is needed: %v: %s", err, out)
		}
		cmd := exec.Command("unshare", "--time", "--boottime", "1000", os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), inNamespace+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	var awake unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake); err != nil {
		t.Fatal(err)
	}
	if now := Now(); now < float64(awake.Nano())/1e3+1000e6 {
		t.Errorf("the time is %.0f us, and %.0f us without 1000 s of suspension", now, float64(awake.Nano())/1e3)
	}
}
