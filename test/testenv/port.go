package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
)

// FreePort returns a TCP port that is free on every address. No other call returns it until this process ends, in any
// process of this user: a server that is stopped and started again finds its port free, and a test never reaches the
// server of another test. The port is outside the range of outgoing connections, of which a load test has thousands.
func FreePort(t TB) int {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatalf("testenv: no free port: %v", err)
	}
	return port
}

// FreeAddress returns an address of this machine, host:port, with a port of FreePort.
func FreeAddress(t TB) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t))
}

// Ports from firstPort up to firstOutgoing, where ip_local_port_range begins on Linux.
const firstPort, firstOutgoing = 10240, 32768

// ports are the ports of this process. Each locks the byte at its number in a file that all processes of the user open.
// The system releases the locks of a process when it ends.
var ports struct {
	sync.Mutex
	given map[int]bool // a process does not exclude itself by a lock
	locks *os.File     // never closed, which would release all locks
}

func freePort() (port int, err error) {
	ports.Lock()
	defer ports.Unlock()
	for range 1000 {
		port = firstPort + rand.IntN(firstOutgoing-firstPort)
		if ports.given[port] {
			continue
		}
		if err = lockPort(port); err != nil { // another process has it
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf(":%d", port)); err != nil { // another program has it
			continue
		}
		l.Close()
		return port, nil
	}
	return 0, fmt.Errorf("a thousand were tried; the last error is: %w", err)
}

// lockPort locks a port for this process. The caller holds ports.
func lockPort(port int) error {
	if ports.locks == nil {
		// Not in os.TempDir, which differs between test runs, or in the cache directory, which a user may lack.
		name := fmt.Sprintf("/tmp/sluice-test-ports-%d", os.Getuid())
		var err error
		if ports.locks, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return err
		}
		ports.given = map[int]bool{}
	}
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: int64(port), Len: 1}
	if err := syscall.FcntlFlock(ports.locks.Fd(), syscall.F_SETLK, &lock); err != nil {
		return err
	}
	ports.given[port] = true
	return nil
}
