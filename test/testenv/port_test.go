package testenv

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestPortsOfOtherProcesses starts itself as another process, which tries to get a port of this one.
func TestPortsOfOtherProcesses(t *testing.T) {
	const variable = "SLUICE_TEST_PORTS"
	if list := os.Getenv(variable); list != "" {
		var got []string
		for _, text := range strings.Fields(list) {
			port, err := strconv.Atoi(text)
			if err == nil {
				err = lockPort(port)
			}
			if err == nil {
				got = append(got, text)
			}
		}
		if want := os.Getenv(variable + "_WANT"); strings.Join(got, " ") != want {
			t.Errorf("it got the ports %v of %s, want %s", got, list, want)
		}
		return
	}
	mine := strconv.Itoa(FreePort(t))
	free := strconv.Itoa(firstPort - 1) // never given
	other := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	other.Env = append(os.Environ(), variable+"="+mine+" "+free, variable+"_WANT="+free)
	if out, err := other.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
