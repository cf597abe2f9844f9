// Package unixsocket provides Unix sockets that every user of the machine can open, because the processes of sluice and
// the workers of nginx may run as different users. A Socket is in a directory of its own and serves the workers of
// nginx; Claim listens at a configured path.
package unixsocket

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"sluice/internal/loop"
)

// Socket is a Unix socket in a directory of its own. Other users can open the files of the directory but cannot list
// them. Create it with Listen.
type Socket struct {
	dir, name string
	listener  net.Listener
}

// Listen opens the socket name in a new directory with a random name after prefix.
func Listen(prefix, name string) (*Socket, error) {
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	s := &Socket{dir: dir, name: name}
	if err = os.Chmod(dir, 0o711); err == nil { //nolint:gosec // see Socket
		s.listener, err = net.Listen("unix", s.Path())
	}
	if err == nil {
		err = os.Chmod(s.Path(), 0o666) //nolint:gosec // see Socket
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Dir is the directory, which Close removes with all its files.
func (s *Socket) Dir() string { return s.dir }

// Path is the path of the socket.
func (s *Socket) Path() string { return filepath.Join(s.dir, s.name) }

// Close removes the directory. Call it after Serve has returned.
func (s *Socket) Close() {
	if s.listener != nil {
		s.listener.Close()
	}
	_ = os.RemoveAll(s.dir)
}

// Serve calls handle for each connection and then closes it, until ctx ends and all calls have returned. At most limit
// calls run at a time. what names the failed operation in the log if a connection cannot be accepted, for example
// because of too many open files. Serve then continues.
func (s *Socket) Serve(ctx context.Context, log *slog.Logger, what string, limit int, handle func(net.Conn)) {
	var running sync.WaitGroup
	defer running.Wait()
	defer context.AfterFunc(ctx, func() { s.listener.Close() })()
	slots := make(chan struct{}, limit)
	accepting := loop.Backoff{Log: log, What: what}
	for ctx.Err() == nil {
		conn, err := s.listener.Accept()
		if err != nil {
			accepting.Failed(ctx, err)
			continue
		}
		accepting.Succeeded()
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			handle(conn)
		})
	}
}
