package unixsocket

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func mustClaim(t *testing.T, path string) net.Listener {
	t.Helper()
	ln, err := Claim(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// leaveSocket leaves a socket at path as a killed process does.
func leaveSocket(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
}

// wantReached reports an error unless a connection to path arrives at ln.
func wantReached(t *testing.T, ln net.Listener, path string) {
	t.Helper()
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_ = client.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		if c, err := ln.Accept(); err == nil {
			_, _ = c.Write([]byte("x"))
			c.Close()
		}
	}()
	if n, err := client.Read(make([]byte, 1)); n != 1 {
		t.Fatalf("the connection does not arrive at the listener: %v", err)
	}
}

func TestEveryUserMayConnect(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	wantReached(t, mustClaim(t, path), path)
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o666 {
		t.Errorf("the socket has the mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Lstat(path + lockSuffix); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the lock has the mode %v, %v", info.Mode(), err)
	}
}

func TestSocketOfAKilledProcessIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	leaveSocket(t, path)
	wantReached(t, mustClaim(t, path), path)
}

// Claim replaces only a socket of a process that has ended. Any other file stays and is an error.
func TestNothingElseIsReplaced(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	stale := at("stale.sock")
	leaveSocket(t, stale)
	foreign, err := net.Listen("unix", at("foreign"))
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	datagrams, err := net.ListenPacket("unixgram", at("datagrams"))
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	mustClaim(t, at("claimed"))
	for _, err := range []error{
		os.WriteFile(at("file"), []byte("text"), 0o600),
		os.Mkdir(at("directory"), 0o700),
		os.Symlink(stale, at("link")),
		os.Symlink(at("nothing"), at("dangling")),
		os.WriteFile(at("target"), nil, 0o600),
		os.Symlink(at("target"), at("locklink")+lockSuffix),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"foreign":       "another process listens",
		"claimed":       "another process listens",
		"datagrams":     "may be in use",
		"file":          "not a socket",
		"directory":     "not a socket",
		"link":          "not a socket",
		"dangling":      "not a socket",
		"locklink":      "too many levels of symbolic links",
		"missing/a":     "the directory of the socket must exist",
		"file/a":        "the directory of the socket must exist",
		"link/nowhere":  "the directory of the socket must exist",
		"directory/b/c": "the directory of the socket must exist",
	} {
		before, _ := os.Lstat(at(name))
		ln, err := Claim(t.Context(), at(name))
		if err == nil {
			ln.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if after, _ := os.Lstat(at(name)); before != nil && (after == nil || !os.SameFile(before, after)) {
			t.Errorf("%s was replaced", name)
		}
	}
	if _, err := os.Lstat(stale); err != nil {
		t.Errorf("the socket behind the link was removed: %v", err)
	}
}

// If several processes claim a path concurrently, exactly one listens, also if a killed process has left its socket.
func TestOneOfManyListens(t *testing.T) {
	for round := range 50 {
		path := filepath.Join(t.TempDir(), "a.sock")
		if round%2 == 0 {
			leaveSocket(t, path)
		}
		var mu sync.Mutex
		var listening []net.Listener
		var together sync.WaitGroup
		begin := make(chan struct{})
		for range 8 {
			together.Go(func() {
				<-begin
				ln, err := Claim(t.Context(), path)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					listening = append(listening, ln)
				case !strings.Contains(err.Error(), "another process listens"):
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		close(begin)
		together.Wait()
		if len(listening) != 1 {
			t.Fatalf("round %d: %d listeners have the path, want one", round, len(listening))
		}
		wantReached(t, listening[0], path)
		listening[0].Close()
	}
}

func TestCloseReleasesThePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.sock")
	first := mustClaim(t, path)
	for range 2 { // httpserver and its caller both close it
		if err := first.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is still there: %v", err)
	}
	second := mustClaim(t, path)
	first.Close()
	wantReached(t, second, path)
}

func TestCloseKeepsWhatReplacedTheSocket(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"file":   func(path string) error { return os.WriteFile(path, []byte("text"), 0o600) },
		"socket": func(path string) error { _, err := net.Listen("unix", path); return err },
	} {
		path := filepath.Join(t.TempDir(), "a.sock")
		ln := mustClaim(t, path)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := replace(path); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", name, err))
		}
		ln.Close()
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("the other %s was removed: %v", name, err)
		}
	}
}
