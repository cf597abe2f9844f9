package main

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sluice/test/testenv"
)

// An address in use is reported in one line with the flag and the remedy, and no line precedes it.
func TestAddressInUseIsReportedBeforeTheProcessIsUp(t *testing.T) {
	used := testenv.Listen(t).Addr().String()
	stores := " --redis redis://127.0.0.1:1/0 --database sqlite:" + filepath.Join(t.TempDir(), "db")
	remedy := "address already in use: stop the process that listens there, or choose another address\n"
	for line, want := range map[string][2]string{
		"gateway --upstream 127.0.0.1:1 --listen 127.0.0.1:0 --metrics " + used: {"--metrics", remedy},
		"watcher --redis redis://127.0.0.1:1/0 --metrics " + used:               {"--metrics", remedy},
		"worker --metrics " + used + stores:                                     {"--metrics", remedy},
		"group run points --metrics " + used + stores:                           {"--metrics", remedy},
		"backend --admin 127.0.0.1:0 --listen " + used + stores:                 {"--listen", remedy},
		"backend --listen 127.0.0.1:0 --admin " + used + stores:                 {"--admin", remedy},
		"backend --admin 127.0.0.1:0 --listen unix:/nosuch/backend.sock" + stores: {"--listen",
			"the directory of the socket must exist, and this user must be able to write to it\n"},
	} {
		code, stdout, stderr := call(t, line, envSecret+"="+testSecret, envAdminToken+"="+testSecret)
		if code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "sluice: "+want[0]+": ") ||
			!strings.HasSuffix(stderr, want[1]) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("sluice %s: exit %d, %s%s, want one line with %s", line, code, stdout, stderr, want)
		}
	}
}

// A port that needs a capability is reported with the remedies. A Unix socket needs none.
func TestPrivilegedPortIsReportedWithItsRemedies(t *testing.T) {
	denied := os.NewSyscallError("bind", syscall.EACCES)
	tcp := &net.OpError{Op: "listen", Net: "tcp", Addr: &net.TCPAddr{Port: 80}, Err: denied}
	want := "--listen: listen tcp :80: bind: permission denied: choose a port above 1023, or allow lower ones: " +
		"setcap cap_net_bind_service=+ep on the program, or AmbientCapabilities=CAP_NET_BIND_SERVICE in its systemd unit"
	if got := listenError("listen", tcp).Error(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	unix := &net.OpError{Op: "listen", Net: "unix", Addr: &net.UnixAddr{Name: "/run/x", Net: "unix"}, Err: denied}
	if got := listenError("listen", unix).Error(); got != "--listen: "+unix.Error() {
		t.Errorf("%s", got)
	}
}
