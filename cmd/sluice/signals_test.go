package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/test/testenv"
)

// The environment of a child process of these tests has the arguments of sluice, one a line.
const childArguments = "SLUICE_TEST_CHILD_ARGUMENTS"

// child is a sluice in a process of its own.
type child struct {
	*exec.Cmd
	t     *testing.T
	log   *testenv.Buffer
	ended chan struct{} // closed when the process has ended with err
	err   error
}

// startChild runs sluice, through a shell that first runs setup, and waits until its output has a text.
func startChild(t *testing.T, setup, started string, args ...string) *child {
	t.Helper()
	_, restore := received(syscall.SIGHUP) // under nohup a child would inherit it as ignored
	t.Cleanup(restore)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	c := &child{t: t, log: &testenv.Buffer{}, ended: make(chan struct{})}
	c.Cmd = exec.CommandContext(ctx, "/bin/sh", "-c", setup+` exec "$@"`, "sh",
		os.Args[0], "-test.run=^TestChild$")
	c.Env = append(os.Environ(), childArguments+"="+strings.Join(args, "\n"), envSecret+"="+testSecret)
	c.Stdout, c.Stderr = c.log, c.log
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = time.Minute
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.err = c.Wait(); close(c.ended) }()
	t.Cleanup(func() { stop(); <-c.ended })
	c.awaitLog(started)
	return c
}

// TestChild is sluice in the child process, and otherwise no test.
func TestChild(t *testing.T) {
	args, is := os.LookupEnv(childArguments)
	if !is {
		t.Skip("not a child process")
	}
	os.Args = append([]string{"sluice"}, strings.Split(args, "\n")...)
	main()
}

func (c *child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.Process.Signal(s); err != nil {
		c.t.Fatalf("%v: %v: %s", s, err, c.log)
	}
}

func (c *child) awaitLog(text string) {
	c.t.Helper()
	testenv.Eventually(c.t, time.Minute, "the process logs "+text, func() bool {
		select {
		case <-c.ended: // its log is complete
			if !strings.Contains(c.log.String(), text) {
				c.t.Fatalf("the process ended with %v and did not log %q: %s", c.err, text, c.log)
			}
		default:
		}
		return strings.Contains(c.log.String(), text)
	})
}

// ends waits for a normal end.
func (c *child) ends() {
	c.t.Helper()
	<-c.ended
	if c.err != nil {
		c.t.Errorf("the process ended with: %v: %s", c.err, c.log)
	}
}

// SIGHUP stops a process that has nothing to reload, as SIGTERM does.
func TestHangupStops(t *testing.T) {
	t.Parallel()
	up := startChild(t, "", "edge listening", "up", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--data", testenv.MemoryDir(t))
	up.signal(syscall.SIGHUP)
	up.ends()
}

// A process that was started with SIGHUP ignored, as by nohup, ignores it.
func TestNohup(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	t.Parallel()
	up := startChild(t, "trap '' HUP;", "edge listening", "up", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--data", testenv.MemoryDir(t))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", up.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, ignored, _ := strings.Cut(string(status), "SigIgn:")
	var mask uint64
	if _, err := fmt.Sscanf(ignored, "%x", &mask); err != nil || mask>>(syscall.SIGHUP-1)&1 != 1 {
		t.Errorf("SIGHUP is not ignored: %v, %x", err, mask)
	}
	up.signal(syscall.SIGTERM)
	up.ends()
}

// SIGHUP and SIGUSR1 make a gateway reopen its access log. Without one it logs that it ignores them.
func TestGatewayReopensItsAccessLogOnHangup(t *testing.T) {
	t.Parallel()
	args := []string{"gateway", "--upstream", "127.0.0.1:1", "--listen", "127.0.0.1:0"}
	plain := startChild(t, "", "gateway is up", args...)
	plain.awaitLog(`"keys":["HS256"]`)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1} {
		plain.signal(s)
		plain.awaitLog(fmt.Sprintf(`"signal":"%v"`, s))
	}
	plain.signal(syscall.SIGTERM)
	plain.ends()

	log := filepath.Join(t.TempDir(), "access.log")
	logs := startChild(t, "", "gateway is up", append(args, "--access-log", log)...)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1} {
		if err := os.Remove(log); err != nil {
			t.Fatal(err)
		}
		logs.signal(s)
		testenv.Eventually(t, time.Minute, "the log is reopened", func() bool { return isFile(log) })
	}
	logs.signal(syscall.SIGTERM)
	logs.ends()
}

// SIGHUP reloads the nginx edge. A policy with an error is logged, and the previous one stays in use.
func TestEdgeReloadsOnHangup(t *testing.T) {
	t.Parallel()
	address := testenv.FreeAddress(t)
	file := write(t, "policy.lua", "return { rules = {} }")
	edge := startChild(t, "", "edge listening", "edge", "--upstream", "127.0.0.1:1", "--root=", "--listen", address,
		"--prefix", t.TempDir(), "--policy", file)
	for _, c := range []struct {
		policy, log string
		status      int
	}{
		{"return {", file + ":1: unexpected end of the file: is a bracket not closed?", 503},
		{`return { rules = { { name = "all", key = "token", rate = "1r/s" } } }`, `"msg":"reloaded"`, 401},
	} {
		if err := os.WriteFile(file, []byte(c.policy), 0o600); err != nil {
			t.Fatal(err)
		}
		edge.signal(syscall.SIGHUP)
		edge.awaitLog(c.log)
		testenv.Eventually(t, time.Minute, fmt.Sprintf("the edge answers %d", c.status), func() bool {
			return statusOf(t.Context(), "http://"+address+"/v1/sales") == c.status
		})
	}
	edge.signal(syscall.SIGTERM)
	edge.ends()
}

// A second signal ends the removal of a copy that waits for queued orders.
func TestSecondSignalEndsTheCleanup(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/admin/v1/rehearsals":
			fmt.Fprint(w, `{"id":"rehearsal-shoe","stock":1}`)
		case strings.HasSuffix(r.URL.Path, "/remove"):
			w.WriteHeader(http.StatusConflict)
		default:
			fmt.Fprint(w, `{}`)
		}
	}))
	t.Cleanup(server.Close)
	args := "rehearse shoe --no-report --lead 10m --max-drain 10m --target " + server.URL + " --server " + server.URL
	c := startChild(t, envAdminToken+"=hush", "waiting for the opening", strings.Fields(args)...)
	c.signal(syscall.SIGINT)
	c.awaitLog("removing the copy")
	testenv.Eventually(t, time.Minute, "another signal ends the process", func() bool {
		select {
		case <-c.ended:
			return true
		default:
			_ = c.Process.Signal(syscall.SIGINT)
			return false
		}
	})
	if code := c.ProcessState.ExitCode(); code != exitFail || !strings.Contains(c.log.String(),
		`; it closes automatically, and "sluice rehearse clean" removes it`) {
		t.Errorf("exit %d: %s", code, c.log)
	}
}

// statusOf returns the status of a GET on a connection of its own, 0 without an answer.
func statusOf(ctx context.Context, url string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// Ctrl-C ends the reader of a log too, as in sluice up 2>&1 | tee up.log. The process completes its work nevertheless.
func TestStopWithoutAReaderOfTheLog(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	c.Env = append(os.Environ(), envSecret+"="+testSecret, childArguments+"="+strings.Join([]string{
		"gateway", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1"}, "\n"))
	c.Stdout, c.Stderr = writer, writer
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	for lines := bufio.NewScanner(reader); lines.Scan() && !strings.Contains(lines.Text(), "edge listening"); {
	}
	reader.Close() // the next line of the log reports the drain
	if err := errors.Join(c.Process.Signal(syscall.SIGTERM), c.Wait()); err != nil {
		t.Errorf("the process ended with: %v", err)
	}
}

// A gateway continues when the reader of its access log has ended, as that of sluice gateway --access-log - | rotate.
func TestGatewayWithoutAReaderOfItsAccessLog(t *testing.T) {
	t.Parallel()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	address := testenv.FreeAddress(t)
	c := &child{t: t, log: &testenv.Buffer{}, ended: make(chan struct{})}
	c.Cmd = exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChild$")
	c.Env = append(os.Environ(), envSecret+"="+testSecret, childArguments+"="+strings.Join([]string{
		"gateway", "--listen", address, "--upstream", "http://127.0.0.1:1", "--access-log", "-"}, "\n"))
	c.Stdout, c.Stderr = writer, c.log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	go func() { c.err = c.Wait(); close(c.ended) }()
	c.awaitLog("edge listening")
	for _, log := range []string{"writing the access log failed", ""} {
		if status := statusOf(t.Context(), "http://"+address+"/v1/sales"); status != http.StatusServiceUnavailable {
			t.Errorf("status %d, want 503", status)
		}
		c.awaitLog(log)
	}
	c.signal(syscall.SIGTERM)
	c.ends()
}

// A terminal that is closed ends the reader of a log as Ctrl-C does.
func TestHangupWithoutAReaderOfTheLog(t *testing.T) {
	_, restore := received(syscall.SIGHUP) // under nohup it would be ignored
	defer restore()
	defer signal.Reset(syscall.SIGPIPE)
	ctx, stop := untilHangup(t.Context(), tree(t)[0], []string{"worker"})
	defer stop()
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if !signal.Ignored(syscall.SIGPIPE) {
		t.Error("a lost reader of the log would kill the process")
	}
}
