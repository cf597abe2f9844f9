package mirror_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/internal/token"
	"sluice/internal/token/mirror"
	"sluice/internal/token/tokentest"
	"sluice/test/testenv"
)

// run starts a mirror of the keys of a provider. stop stops it and waits for its end.
func run(t *testing.T, p *tokentest.Provider) (m *mirror.Mirror, log *testenv.Buffer, stop func()) {
	t.Helper()
	keys, err := token.Open(p.Serve(t), "", token.Options{})
	if err != nil {
		t.Fatal(err)
	}
	log = new(testenv.Buffer)
	logger := slog.New(slog.NewTextHandler(log, nil))
	if err := keys.Await(t.Context(), logger); err != nil {
		t.Fatal(err)
	}
	if m, err = mirror.New(keys, logger); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done; m.Close() })
	t.Cleanup(stop)
	return m, log, stop
}

// kids returns the names of the keys in the file.
func kids(t *testing.T, m *mirror.Mirror) string {
	t.Helper()
	file, err := token.Open(m.File(), "", token.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(file.Set().Names(), ", ")
}

func request(m *mirror.Mirror) (string, error) {
	conn, err := net.Dial("unix", m.Socket())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

// A connection is answered after the file has the newest keys, with the time until the next fetch is permitted.
func TestConnectionIsAnsweredAfterAFetch(t *testing.T) {
	p := tokentest.NewProvider(token.EdDSA, "first")
	m, _, stop := run(t, p)
	if got := kids(t, m); got != "EdDSA first" {
		t.Errorf("at first: %s", got)
	}
	p.Rotate("second")
	if got, err := request(m); got != "0\n" || err != nil {
		t.Errorf("the first answer: %q, %v", got, err)
	}
	if got := kids(t, m); got != "EdDSA first, EdDSA second" {
		t.Errorf("after a request: %s", got)
	}
	var last string
	for range 5 {
		var err error
		if last, err = request(m); err != nil {
			t.Fatal(err)
		}
	}
	if last == "0\n" || p.Fetches() > 4+1 {
		t.Errorf("the last answer is %q, after %d fetches", last, p.Fetches())
	}
	stop()
	if _, err := os.Stat(m.File()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
}

// While the disk is full, the file has all previous keys. Afterwards it has the new ones, although the provider
// publishes no further change.
func TestFullDiskKeepsThePreviousKeys(t *testing.T) {
	p := tokentest.NewProvider(token.EdDSA, "first")
	m, log, _ := run(t, p)
	next := m.File() + ".new"
	if err := os.Symlink("/dev/full", next); err != nil {
		t.Fatal(err)
	}
	p.Rotate("second")
	if _, err := request(m); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "the failure is logged", func() bool {
		return strings.Contains(log.String(), "writing the token keys fails") &&
			strings.Contains(log.String(), "no space left on device")
	})
	if got := kids(t, m); got != "EdDSA first" {
		t.Errorf("while the disk is full: %s", got)
	}
	if err := os.Remove(next); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, time.Minute, "the new key is in the file", func() bool {
		return kids(t, m) == "EdDSA first, EdDSA second"
	})
}

// Processes of other users may open connections up to the limit of open files. The mirror serves again after they are
// closed.
func TestMirrorSurvivesTooManyConnections(t *testing.T) {
	p := tokentest.NewProvider(token.EdDSA, "first")
	m, log, _ := run(t, p)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", m.Socket()) // loads what a dial needs
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	least := old
	least.Cur = 1 // no further file can be opened
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &least); err != nil {
		t.Fatal(err)
	}
	connected := syscall.Connect(fd, &syscall.SockaddrUnix{Name: m.Socket()})
	testenv.Eventually(t, time.Minute, "the failure is logged", func() bool {
		return strings.Contains(log.String(), "too many open files")
	})
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if connected != nil {
		t.Fatal(connected)
	}
	p.Rotate("second")
	if _, err := request(m); err != nil {
		t.Fatal(err)
	}
	if got := kids(t, m); got != "EdDSA first, EdDSA second" {
		t.Errorf("after many connections: %s", got)
	}
}
