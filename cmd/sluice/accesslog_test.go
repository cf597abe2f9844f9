package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// The access log may be a pipe that nothing reads. A signal ends the gateway that waits for its reader.
func TestAccessLogOfAPipeIsInterruptible(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	args := []string{"gateway", "--listen", "127.0.0.1:0", "--upstream", "127.0.0.1:1", "--access-log", pipe(t)}
	getenv := func(name string) string { return map[string]string{envSecret: testSecret}[name] }
	ended := make(chan int, 1)
	var errOut strings.Builder
	go func() { ended <- run(ctx, args, getenv, io.Discard, &errOut) }()
	select {
	case code := <-ended:
		if code != exitOK || errOut.String() != "" {
			t.Errorf("exit %d, %s", code, &errOut)
		}
	case <-time.After(time.Minute):
		t.Error("the gateway waits for a reader")
	}
}

// A full pipe delays a write for a bounded time, so that the gateway can answer and end. Until the pipe is read again,
// it delays further writes hardly at all.
func TestWriteToAFullPipeEnds(t *testing.T) {
	path := pipe(t)
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	log, err := openAccessFile(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.close()
	for _, want := range []time.Duration{accessTimeout, stalledTimeout} {
		if got := writeTimeout(log.stalled); got != want {
			t.Errorf("the timeout is %v, want %v", got, want)
		}
		if n, err := log.Write(make([]byte, 4<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("wrote %d bytes, %v", n, err)
		}
	}
	if _, err := io.ReadFull(reader, make([]byte, 32<<10)); err != nil {
		t.Fatal(err)
	}
	if _, err := log.Write([]byte("a line\n")); err != nil {
		t.Error(err)
	}
	if got := writeTimeout(log.stalled); got != accessTimeout {
		t.Errorf("after the pipe was read, the timeout is %v, want %v", got, accessTimeout)
	}
}

// Standard output may be a pipe that nothing reads, or that is read slowly, and has no deadline: the lines of a delayed
// write arrive when the pipe is read. Until the reader keeps up, it delays further writes hardly at all.
func TestWriteToAStalledStandardOutputEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, stdout := io.Pipe()
		log, _, done, err := (&program{stdout: stdout}).openAccessLog(t.Context(), "-")
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		delayed := func(line string, want time.Duration) {
			t.Helper()
			start := time.Now()
			if _, err := log.Write([]byte(line)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error(err)
			}
			if got := time.Since(start); got != want {
				t.Errorf("the write took %v, want %v", got, want)
			}
		}
		delayed("first\n", accessTimeout)
		delayed("dropped\n", 0)
		if _, err := io.ReadFull(reader, make([]byte, len("first\n"))); err != nil { // the reader is slow
			t.Fatal(err)
		}
		synctest.Wait()
		delayed("second\n", stalledTimeout)
		delayed("dropped\n", 0)
		read := make(chan string, 1)
		go func() {
			text, _ := io.ReadAll(reader)
			read <- string(text)
		}()
		synctest.Wait()
		if _, err := log.Write([]byte("a line\n")); err != nil {
			t.Error(err)
		}
		stdout.Close()
		if got := <-read; got != "second\na line\n" {
			t.Errorf("read %q", got)
		}
	})
}

// pipe returns the path of a named pipe. An open that continues after an interrupt may create a file instead, once the
// pipe is removed. The directory is renamed first, because a new file in it would prevent its removal.
func pipe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	parent := filepath.Join(dir, "parent")
	path := filepath.Join(parent, "pipe")
	t.Cleanup(func() {
		if err := os.Rename(parent, filepath.Join(dir, "renamed")); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(os.Mkdir(parent, 0o700), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}
