package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"sluice/test/testenv"
)

// ownNamespaces marks a process that runs in its own namespaces.
const ownNamespaces = "SLUICE_SEVERAL_WORLD"

// inOwnNamespaces runs the rest of a test in its own network, process, mount and IPC namespaces, and returns true
// there. When that process ends, the kernel removes its hosts, links and servers.
func inOwnNamespaces(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownNamespaces) != "" {
		for _, args := range [][]string{
			{"mount", "--make-rprivate", "/"}, {"mount", "-t", "proc", "proc", "/proc"}, {"ip", "link", "set", "lo", "up"},
		} {
			command(t, args...)
		}
		return true
	}
	if os.Getuid() != 0 {
		t.Fatal("the machines are network namespaces, which only root can create: run the test as root")
	}
	testenv.Find(t, "ip", "iproute2")
	testenv.Find(t, "haproxy", "haproxy")
	args := os.Args[1:]
	// A filter with a slash selects parts of this test, and is kept.
	if filter := flag.Lookup("test.run").Value.String(); !strings.Contains(filter, "/") {
		args = append(args, "-test.run", "^"+t.Name()+"$")
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), ownNamespaces+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Pdeathsig:  syscall.SIGKILL,
	}
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s in its own namespaces: %v", t.Name(), err)
	}
	return false
}

// command runs a short command and returns its output.
func command(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// lan is a network of hosts with one switch. This process is connected to the switch, and so are the buyers.
type lan struct {
	t     *testing.T
	hosts []*host
}

// host is a machine of the network.
type host struct {
	name, ip string
	pid      int // of the process that keeps its namespaces
	dir      string
}

const (
	buyersIP = "10.77.0.1" // of the buyers and the admin
	network  = "/16"
)

// newLAN creates the hosts. Each has permanent entries for the hardware addresses of all others: packets to a host
// that is cut off vanish as behind a router, without even "no route to host".
func newLAN(t *testing.T, names ...string) *lan {
	t.Helper()
	l := &lan{t: t}
	mac := func(n int) string { return fmt.Sprintf("02:00:0a:4d:00:%02x", n) }
	var known strings.Builder
	for i := range len(names) + 1 {
		fmt.Fprintf(&known, "neigh replace 10.77.0.%d lladdr %s nud permanent dev eth0\n", i+1, mac(i+1))
	}
	ip := func(batch string, enter ...string) {
		t.Helper()
		cmd := exec.Command("ip", "-batch", "-")
		if len(enter) > 0 {
			cmd = exec.Command(enter[0], append(enter[1:], "ip", "-batch", "-")...)
		}
		cmd.Stdin = strings.NewReader(batch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("ip: %v\n%s", err, out)
		}
	}
	ip(
		"link add eth0 address " + mac(1) + " type bridge\naddr add " + buyersIP + network + " dev eth0\nlink set eth0 up\n",
	)
	for i, name := range names {
		h := &host{name: name, ip: fmt.Sprintf("10.77.0.%d", i+2), dir: t.TempDir()}
		keeper := exec.Command("sleep", "infinity")
		keeper.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS,
			Pdeathsig:  syscall.SIGKILL,
		}
		if err := keeper.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = keeper.Process.Kill(); _ = keeper.Wait() })
		h.pid = keeper.Process.Pid
		ip(
			fmt.Sprintf("link add port%d type veth peer name eth0 address %s netns %d\nlink set port%d master eth0 up\n", i+2,
				mac(i+2), h.pid, i+2),
		)
		ip("link set lo up\naddr add "+h.ip+network+" dev eth0\nlink set eth0 up\n"+known.String(), h.enter()...)
		command(t, append(h.enter(), "hostname", name)...)
		l.hosts = append(l.hosts, h)
	}
	ip(known.String())
	return l
}

func (l *lan) host(name string) *host {
	l.t.Helper()
	for _, h := range l.hosts {
		if h.name == name {
			return h
		}
	}
	l.t.Fatalf("there is no host %s", name)
	return nil
}

// cut disconnects hosts from the network. join connects them again.
func (l *lan) cut(names ...string)  { l.link("down", names) }
func (l *lan) join(names ...string) { l.link("up", names) }

func (l *lan) link(state string, names []string) {
	l.t.Helper()
	for i, h := range l.hosts {
		for _, name := range names {
			if h.name == name {
				command(l.t, "ip", "link", "set", fmt.Sprint("port", i+2), state)
			}
		}
	}
}

// enter returns the beginning of a command that runs on the host.
func (h *host) enter() []string {
	ns := fmt.Sprintf("/proc/%d/ns/", h.pid)
	return []string{"nsenter", "--net=" + ns + "net", "--uts=" + ns + "uts"}
}

// silent hides the output of other projects' servers when a test fails, because it is long.
type silent struct{ testenv.TB }

// launch starts a program on the host.
func (h *host) launch(t testenv.TB, env []string, args ...string) *testenv.Program {
	t.Helper()
	enter := h.enter()
	return testenv.Launch(t, enter[0], env, append(append(enter[1:], "--"), args...)...)
}

func (h *host) at(port int) string { return fmt.Sprintf("%s:%d", h.ip, port) }
