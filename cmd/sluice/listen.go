package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"sluice/internal/unixsocket"
)

func (f *flagSet) listen(to *string, name, env, def, help string) {
	f.str(to, name, env, def, help)
	f.check(func(bad *problems) {
		bad.checkHostPort(name, *to, defaultListen)
	})
}

// listenOrSocket declares the address of a listener that can be a Unix socket.
func (f *flagSet) listenOrSocket(to *string, name, env, def, help string) {
	f.str(to, name, env, def, help)
	f.check(func(bad *problems) {
		if !unixsocket.IsAddress(*to) {
			bad.checkHostPort(name, *to, defaultListen+", or unix:/path")
		} else if err := unixsocket.Check(*to); err != nil {
			bad.add("--%s %q: %v", name, *to, err)
		}
	})
}

// checkHostPort checks an address of a flag. The message names examples of what the flag accepts.
func (m *problems) checkHostPort(flag, addr, examples string) {
	_, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" || unixsocket.IsAddress(addr) {
		m.add("--%s %q: want host:port, such as %s", flag, addr, examples)
	} else if number, err := strconv.Atoi(port); err == nil && number > math.MaxUint16 {
		m.add("--%s %q: a port is at most %d", flag, addr, math.MaxUint16)
	}
}

// checkDistinct checks that the address of a flag is not that of --listen.
func (m *problems) checkDistinct(flag, addr, listen string) {
	if addr == listen && !strings.HasSuffix(addr, ":0") {
		m.add("--listen and --%s are both %s: want two addresses", flag, addr)
	}
}

func listen(ctx context.Context, flag, addr string) (ln net.Listener, err error) {
	if network, to := unixsocket.Network(addr); network == "unix" {
		ln, err = unixsocket.Claim(ctx, to)
	} else {
		ln, err = new(net.ListenConfig).Listen(ctx, network, to)
	}
	if err != nil {
		return nil, orInterrupted(ctx, listenError(flag, err))
	}
	return ln, nil
}

// listenError names the flag and the remedy of an error of listen.
func listenError(flag string, err error) error {
	op, _ := errors.AsType[*net.OpError](err)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return usage("--%s: %w: stop the process that listens there, or choose another address", flag, err)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return usage("--%s: %w: choose an address of this machine, or :PORT for all of them", flag, err)
	case errors.Is(err, syscall.EACCES) && op != nil && op.Net == "tcp":
		return usage("--%s: %w: choose a port above 1023, or allow lower ones: setcap cap_net_bind_service=+ep on the "+
			"program, or AmbientCapabilities=CAP_NET_BIND_SERVICE in its systemd unit", flag, err)
	}
	return usage("--%s: %w", flag, err)
}

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
