package api

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp tells whether the other side has closed the connection, without reading from it or waiting. Of a connection that it cannot look at it says no.
func hungUp(c net.Conn) bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true // it is closed on this side
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} //nolint:gosec // a file descriptor
		if n, err := unix.Poll(look, 0); err == nil && n > 0 {
			gone = look[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
		}
	})
	return gone || err != nil
}
