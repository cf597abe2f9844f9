package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"
)

// accessFile is a log file that can be reopened after a rotation. It is safe for concurrent use.
type accessFile struct {
	path string

	mu      sync.Mutex
	file    *os.File
	stalled bool // the last write timed out
}

func openAccessFile(ctx context.Context, path string) (*accessFile, error) {
	l := &accessFile{path: path}
	return l, l.reopen(ctx)
}

// reopen switches to the file that the path names now. After an error, the previous file stays in use. It waits for the
// reader of a pipe until ctx ends.
func (l *accessFile) reopen(ctx context.Context) error {
	file, err := interruptible(ctx, func() (*os.File, error) {
		return os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.stalled = file, false
	return nil
}

// accessTimeout bounds a write to a pipe that nothing reads. After a timeout, stalledTimeout bounds the next writes
// until one succeeds. A request that is logged waits for its write.
const (
	accessTimeout  = time.Second
	stalledTimeout = time.Millisecond
)

func (l *accessFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.file.SetWriteDeadline(time.Now().Add(writeTimeout(l.stalled))) // a regular file has no deadline
	n, err := l.file.Write(p)
	l.stalled = errors.Is(err, os.ErrDeadlineExceeded)
	return n, err
}

// writeTimeout returns the bound of a write. stalled: the previous one timed out.
func writeTimeout(stalled bool) time.Duration {
	if stalled {
		return stalledTimeout
	}
	return accessTimeout
}

func (l *accessFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.file.Close() // the file has no buffer, so nothing is lost
}

// limitedWriter bounds the writes to w, such as standard output, which may block and has no deadline. A write that
// takes longer than writeTimeout returns os.ErrDeadlineExceeded and continues in the background. Until it ends,
// further ones return the error immediately and write nothing. It is not safe for concurrent use.
type limitedWriter struct {
	w       io.Writer
	running chan error // receives the result of the write in the background; nil: none
	stalled bool       // the last write timed out
}

func (l *limitedWriter) Write(p []byte) (int, error) {
	select {
	case <-l.running:
		l.running = nil
	default:
	}
	if l.running != nil {
		return 0, os.ErrDeadlineExceeded
	}
	ended, lines := make(chan error, 1), bytes.Clone(p)
	go func() {
		_, err := l.w.Write(lines)
		ended <- err
	}()
	select {
	case err := <-ended:
		l.stalled = false
		return len(p), err
	case <-time.After(writeTimeout(l.stalled)):
		l.running, l.stalled = ended, true
		return 0, os.ErrDeadlineExceeded
	}
}

// reopenAccessLog handles SIGUSR1 and SIGHUP, the signals by which nginx reopens its logs.
func reopenAccessLog(ctx context.Context, file *accessFile, log *slog.Logger, s os.Signal) {
	if file == nil {
		log.Info("signal ignored: there is no access log file; changed policies, keys and certificates are read without a "+
			"signal", "signal", s.String())
		return
	}
	if err := file.reopen(ctx); err != nil && ctx.Err() == nil {
		log.Error("reopening the access log failed, the previous file stays in use", "err", err)
	}
}

// openAccessLog opens what --access-log names: "" for no log, "-" for standard output, or a file, which it also
// returns.
func (p *program) openAccessLog(
	ctx context.Context, path string,
) (to io.Writer, file *accessFile, done func(), err error) {
	switch path {
	case "":
		return nil, nil, func() {}, nil
	case "-":
		return &visibleWriter{w: &limitedWriter{w: p.stdout}}, nil, func() {}, nil // the gateway reports its errors
	}
	if file, err = openAccessFile(ctx, path); err != nil {
		return nil, nil, nil, usage("--access-log: %w", err)
	}
	return file, file, file.close, nil
}
