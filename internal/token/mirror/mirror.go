// Package mirror passes the token keys of a URL to the workers of nginx, which do not fetch them. It writes the keys to
// a file, and a worker that has a token of an unknown key requests a fetch over a Unix socket.
//
// lua/edge/sluice/token/follow.lua is the other side.
package mirror

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sluice/internal/loop"
	"sluice/internal/token"
	"sluice/internal/unixsocket"
)

// maxConns bounds the open connections. All users of the machine can connect; a worker opens one connection at a time.
const maxConns = 128

// Mirror follows keys for the workers of one nginx. Create it with New.
type Mirror struct {
	keys   *token.Keys
	log    *slog.Logger
	socket *unixsocket.Socket
}

// New writes the current keys to a directory of its own, which Close removes. Call keys.Await before.
func New(keys *token.Keys, log *slog.Logger) (*Mirror, error) {
	socket, err := unixsocket.Listen("sluice-keys-", "refresh.sock")
	if err != nil {
		return nil, fmt.Errorf("token keys: %w", err)
	}
	m := &Mirror{keys, log, socket}
	if err := m.write(); err != nil {
		m.Close()
		return nil, fmt.Errorf("token keys: %w", err)
	}
	return m, nil
}

// File is the path of the JWK Set. It is replaced atomically.
func (m *Mirror) File() string { return filepath.Join(m.socket.Dir(), "keys.json") }

// Socket is the path of the Unix socket. A connection causes a fetch, if one is permitted. After its end the answer is
// one line with the number of seconds until another fetch is permitted.
func (m *Mirror) Socket() string { return m.socket.Path() }

// Close removes the files. Call it after Run has returned.
func (m *Mirror) Close() { m.socket.Close() }

// Run follows the keys and serves the socket until ctx ends.
func (m *Mirror) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { m.keys.Follow(ctx, func(err error) { m.changed(ctx, err) }) })
	m.socket.Serve(ctx, m.log, "accepting a worker that requests token keys", maxConns, m.refresh)
}

// answerTimeout bounds the write of one line to a worker.
const answerTimeout = time.Second

func (m *Mirror) refresh(conn net.Conn) {
	next := m.keys.Refresh()
	_ = conn.SetWriteDeadline(time.Now().Add(answerTimeout))
	_, _ = fmt.Fprintf(conn, "%.0f\n", math.Ceil(next.Seconds()))
}

// changed writes changed keys to the file, or logs why they cannot be fetched; the previous keys then stay in use. It
// retries a failed write until ctx ends. Meanwhile no keys are fetched.
func (m *Mirror) changed(ctx context.Context, err error) {
	if err == nil && !loop.Retry(ctx, m.log, "writing the token keys", m.write) {
		return
	}
	m.keys.LogChange(m.log, err)
}

// write replaces the file. After an error the previous file is unchanged. All users can read it, because workers may
// run as another user and the keys are public.
func (m *Mirror) write() error {
	text, err := m.keys.Set().Public()
	if err != nil {
		return err
	}
	next := m.File() + ".new"
	if err := os.WriteFile(next, text, 0o644); err != nil { //nolint:gosec // see above
		return err
	}
	if err := os.Chmod(next, 0o644); err != nil { //nolint:gosec // see above
		return err
	}
	return os.Rename(next, m.File())
}
