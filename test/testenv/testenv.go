// Package testenv starts the real servers that tests need: on loopback, on free ports, with a temporary directory
// each. It stops them by their process id. A server that is not installed fails the test with one line that names the
// package to install.
//
// A package with tests that call SharedPostgres or SharedRedisMasters must run them through Main, which stops the
// shared servers at the end.
package testenv

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"testing"
	"time"
)

// Main runs the tests and then stops what they shared. Use it as: func TestMain(m *testing.M) {
// os.Exit(testenv.Main(m)) }.
func Main(m *testing.M) int {
	code := m.Run()
	sharedPooler.end()
	sharedPostgres.end()
	sharedMasters.end()
	return code
}

// MainWithSluice is Main for a package in a directory of test/ that runs the command of this repository. It sets binary
// to the path of the command while the tests run.
func MainWithSluice(m *testing.M, binary *string) int {
	dir, err := os.MkdirTemp("", "sluice-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	root, _ := filepath.Abs("../..")
	if *binary, err = BuildSluice(root, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return Main(m)
}

// AwaitOK waits until a server answers a GET of url with 200.
func AwaitOK(t TB, url string) {
	t.Helper()
	Eventually(t, time.Minute, "200 from "+url, func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// TB is what is needed of a test; benchmarks that are programs bring their own.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// SocketPath returns a path for the socket of a backend, in a directory of its own that the workers of nginx may enter.
func SocketPath(t TB) string {
	t.Helper()
	return filepath.Join(temporary(t), "backend.sock")
}

// Eventually polls until is true, and fails the test when timeout passes first. what completes the sentence "never
// happened: ...". A stalled machine uses up little of the timeout: of the time between two polls, at most half a second
// counts.
func Eventually(t TB, timeout time.Duration, what string, is func() bool) {
	t.Helper()
	passed, last := time.Duration(0), time.Now()
	for !is() {
		if passed > timeout {
			t.Fatalf("within %s this never happened: %s", timeout, what)
		}
		time.Sleep(5 * time.Millisecond)
		now := time.Now()
		passed, last = passed+min(now.Sub(last), time.Second/2), now
	}
}

// MemoryDir returns a temporary directory, in memory if possible, so that commits do not wait for the disk. It is
// removed when the test ends.
func MemoryDir(t TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "sluice-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Find returns the path of a server binary, looking in PATH, in the places where Debian keeps daemons, and in the
// given patterns.
func Find(t TB, name, debianPackage string, patterns ...string) string {
	t.Helper()
	path, err := find(name, patterns...)
	if err != nil {
		t.Fatalf("%s is not installed: apt-get install %s", name, debianPackage)
	}
	return path
}

func find(name string, patterns ...string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, pattern := range append(patterns, "/usr/sbin/"+name, "/usr/local/sbin/"+name) {
		found, _ := filepath.Glob(pattern)
		sort.Strings(found)
		if len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%s not found", name)
}
