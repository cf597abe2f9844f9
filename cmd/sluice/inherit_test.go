package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"sluice/test/testenv"
)

// A child process, started as systemd starts the service of a socket unit, gets its listener.
func TestListenerOfSocketUnit(t *testing.T) {
	if os.Getenv("SLUICE_TEST_CHILD") != "" {
		ln, err := inheritedListener(os.Getenv)
		if err != nil {
			fmt.Fprintln(os.Stdout, "child:", err)
		} else {
			fmt.Fprintln(os.Stdout, "child:", ln.Addr())
		}
		return
	}
	ln := testenv.Listen(t)
	file, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for count, want := range map[string]string{
		"1": "child: " + ln.Addr().String(),
		"2": `child: LISTEN_FDS is "2": the socket unit needs exactly one ListenStream=`,
	} {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `LISTEN_PID=$$ exec "$@"`, "sh",
			os.Args[0], "-test.run=^TestListenerOfSocketUnit$")
		cmd.Env = append(os.Environ(), "SLUICE_TEST_CHILD=1", "LISTEN_FDS="+count)
		cmd.ExtraFiles = []*os.File{file}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want+"\n") {
			t.Errorf("LISTEN_FDS=%s: %v\n%s\nwant %s", count, err, out, want)
		}
	}
	if ln, err := inheritedListener(func(string) string { return "" }); ln != nil || err != nil {
		t.Errorf("without a socket unit: %v, %v", ln, err)
	}
}
