// Package listen accepts connections for servers that must survive temporary errors of their listener, and returns the
// limit of open files.
package listen

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// The pause after a temporary error doubles with each one.
const (
	firstPause   = 5 * time.Millisecond
	longestPause = time.Second
)

// Accept returns the next connection of ln. It retries temporary errors, such as a lack of file descriptors, and calls
// report with each of them and with the pause that follows; a nil report is not called. Other errors, such as
// net.ErrClosed, are returned. Concurrent calls are as safe as those of ln.
func Accept(ln net.Listener, report func(err error, pause time.Duration)) (net.Conn, error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		c, err := ln.Accept()
		if err == nil || !isTemporary(err) {
			return c, err
		}
		if report != nil {
			report(err, pause)
		}
		time.Sleep(pause)
	}
}

// isTemporary reports whether a later connection may be accepted. Linux also reports network errors of the connection
// that would be accepted, and its rejection by a firewall: see accept(2).
func isTemporary(err error) bool {
	switch errno, _ := errors.AsType[syscall.Errno](err); errno {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR,
		syscall.ENETDOWN, syscall.EPROTO, syscall.ENOPROTOOPT, syscall.EHOSTDOWN, syscall.EHOSTUNREACH,
		syscall.EOPNOTSUPP, syscall.ENETUNREACH, syscall.EPERM:
		return true
	}
	return false
}

// OpenFiles returns the limit of open files, and so of connections, of this process; 0 if it is unknown.
func OpenFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, 1<<20))
}
