package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"
)

// lockSuffix is the suffix of the file that a listening process locks. The file stays, because a process that removes
// it may remove the lock of the next one.
const lockSuffix = ".lock"

// claimed is a listener at a path that belongs to this process until Close.
type claimed struct {
	*net.UnixListener
	close func() error
}

// Close removes the socket and stops listening. A file that has replaced the socket stays.
func (c claimed) Close() error { return c.close() }

// Claim listens on a Unix socket at a path of its own. Every user of the machine with access to the directory can
// connect, because edges run as other users; the directory restricts access.
//
// A socket that a killed process left behind is replaced. A process that listens, and a file that is not a socket, are
// errors. If two processes claim a path concurrently, one fails, because a process holds the lock of path.lock while it
// listens.
func Claim(ctx context.Context, path string) (net.Listener, error) {
	lock, err := hold(path)
	if err != nil {
		return nil, err
	}
	ln, err := bind(ctx, path)
	if err != nil {
		lock.Close()
		return nil, err
	}
	own, err := os.Lstat(path)
	if err != nil {
		ln.Close()
		lock.Close()
		return nil, err
	}
	return claimed{ln, sync.OnceValue(func() error {
		// Removed before the listener closes: until then no other file can have the inode number of the socket.
		if now, err := os.Lstat(path); err == nil && os.SameFile(now, own) {
			_ = os.Remove(path)
		}
		err := ln.Close()
		lock.Close()
		return err
	})}, nil
}

// hold locks the path for this process. A killed process loses its lock.
func hold(path string) (*os.File, error) {
	f, err := os.OpenFile(path+lockSuffix, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: the directory of the socket must exist, and this user must be able to write to it", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, inUse(path)
		}
		return nil, fmt.Errorf("lock %s: %w", path+lockSuffix, err)
	}
	return f, nil
}

func inUse(path string) error {
	return fmt.Errorf("another process listens on %s: stop it, or use another path", path)
}

// bind listens at path. The caller holds its lock.
func bind(ctx context.Context, path string) (*net.UnixListener, error) {
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	// The listener must not unlink the path on Close, because another file may have replaced the socket.
	ln.SetUnlinkOnClose(false)
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // see Claim
		_ = os.Remove(path)
		ln.Close()
		return nil, err
	}
	return ln, nil
}

// removeStale removes a socket at which no process listens.
func removeStale(ctx context.Context, path string) error {
	found, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if found.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket: remove it, or use another path", path)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		conn.Close()
		return inUse(path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("%s may be in use, and is not replaced: %w", path, err)
}
