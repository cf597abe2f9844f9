package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// accessFile is a log file that can be reopened after a rotation. It is safe for concurrent use.
type accessFile struct {
	path string

	mu   sync.Mutex
	file *os.File
}

func openAccessFile(path string) (*accessFile, error) {
	l := &accessFile{path: path}
	return l, l.reopen()
}

// reopen switches to the file that now has the name. On an error it keeps the file before.
func (l *accessFile) reopen() error {
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file = file
	return nil
}

func (l *accessFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Write(p)
}

func (l *accessFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.file.Close() // O_APPEND: what was written is written
}

// followSignals reopens the log on SIGUSR1 and SIGHUP, the signals that nginx uses, until ctx ends.
func (l *accessFile) followSignals(ctx context.Context, log *slog.Logger) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGHUP)
	defer signal.Stop(signals)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-signals:
			if err := l.reopen(); err != nil {
				log.Error("reopening the access log failed, the previous file stays in use", "err", err)
			}
		}
	}
}

// openAccessLog opens what --access-log names: a file, which follow tends to, or "-" for standard output.
func (p *program) openAccessLog(
	path string,
	log *slog.Logger,
) (to io.Writer, follow func(context.Context) error, done func(), err error) {
	if path == "-" {
		return p.out, func(context.Context) error { return nil }, func() {}, nil
	}
	file, err := openAccessFile(path)
	if err != nil {
		return nil, nil, nil, usage("--access-log: %w", err)
	}
	return file, func(ctx context.Context) error { return file.followSignals(ctx, log) }, file.close, nil
}
