package containers

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/docker/docker/client"

	"sluice/test/testenv"
)

const (
	// address of the engine on its default network, which the containers of a build use
	bridge  = "172.31.255.1"
	modules = "http://" + bridge + ":8000"
)

// engine is a Docker engine of the test's own.
type engine struct {
	*client.Client
	host string
}

// startEngine starts an engine, and a module proxy beside it for builds. Both end with the test.
func startEngine(t *testing.T) engine {
	t.Helper()
	dir := os.Getenv(insideVariable)
	data := *keep
	if data == "" {
		data = filepath.Join(dir, "data")
	}
	run(t, "busybox", "ip", "link", "set", "lo", "up")
	write(t, dir+"/daemon.json", "{}") // instead of the configuration of this machine
	log, err := os.Create(dir + "/dockerd.log")
	if err != nil {
		t.Fatal(err)
	}
	e := engine{host: "unix://" + dir + "/docker.sock"}
	cmd := exec.CommandContext(
		context.WithoutCancel(t.Context()),
		"dockerd",
		"--config-file",
		dir+"/daemon.json",
		"--host",
		e.host,
		"--data-root",
		data,
		"--exec-root",
		dir+"/exec",
		"--pidfile",
		dir+"/dockerd.pid",
		"--bip",
		bridge+"/24",
		"--exec-opt",
		"native.cgroupdriver=cgroupfs",
		"--cgroup-parent",
		"/"+filepath.Base(dir),
		"--log-level",
		"warn",
	)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("output of the engine:\n%s", tail(string(text), 40))
		}
	})
	if e.Client, err = client.NewClientWithOpts(client.WithHost(e.host), client.WithAPIVersionNegotiation()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	testenv.Eventually(t, time.Minute, "the engine responds", func() bool {
		_, err := e.Ping(t.Context())
		return err == nil
	})
	serveModules(t)
	return e
}

// serveModules serves the downloaded modules of this machine as a module proxy: the engine has no other route to
// modules.
func serveModules(t *testing.T) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", bridge+":8000")
	if err != nil {
		t.Fatal(err)
	}
	files := os.Getenv(modulesVariable) + "/cache/download"
	server := &http.Server{Handler: http.FileServer(http.Dir(files)), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
}
