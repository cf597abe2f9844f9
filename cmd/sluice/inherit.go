package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
)

// firstInherited is the descriptor of the first listener that systemd passes, see sd_listen_fds(3).
const firstInherited = 3

// inheritedListener returns the listener that a socket unit of systemd passes, or nil without one. A socket unit keeps
// accepting connections while the process restarts, and binds ports below 1024 for a process without capabilities.
func inheritedListener(getenv func(string) string) (net.Listener, error) {
	if getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil //nolint:nilnil // no listener is the usual case
	}
	if n := getenv("LISTEN_FDS"); n != "1" {
		return nil, usage("LISTEN_FDS is %q: the socket unit needs exactly one ListenStream=", n)
	}
	f := os.NewFile(firstInherited, "LISTEN_FDS")
	defer f.Close() // the listener has a copy
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, usageError{Err: fmt.Errorf("LISTEN_FDS: %w", err)}
	}
	return ln, nil
}
