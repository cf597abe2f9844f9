package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The pid file of an edge that was killed remains, also after a restart of the machine, when another process can have
// its pid. A rotation does not send a signal to that process.
func TestRotationSignalsOnlyNginx(t *testing.T) {
	root, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(root, "packaging/debian/etc/edge.logrotate"))
	if err != nil {
		t.Fatal(err)
	}
	_, script, found := strings.Cut(string(config), "postrotate\n")
	script, _, ended := strings.Cut(script, "endscript")
	const state = "/var/lib/private/sluice-edge"
	if !found || !ended || !strings.Contains(script, state) {
		t.Fatalf("no script in %s", config)
	}
	dir := t.TempDir()
	script = strings.ReplaceAll(script, state, dir)
	if err := os.Mkdir(filepath.Join(dir, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	rotate := func() {
		t.Helper()
		if out := output(t, "sh", "-c", script); out != "" {
			t.Errorf("the script printed %q", out)
		}
	}
	rotate() // without an edge
	for name, row := range map[string]struct {
		title string
		want  string
	}{
		"another process":  {"sleep", "no signal"},
		"a worker process": {"nginx: worker process", "no signal"},
		"the edge":         {"nginx: master process nginx", "signal"},
	} {
		t.Run(name, func(t *testing.T) {
			// A signal that was sent before a line is handled before the echo. A second trap instead of the line could run
			// first: dash runs other pending traps when it begins one.
			const other = `got="no signal"; trap 'got=signal' USR1; echo ready
				while :; do read -r line && echo "$got"; done`
			cmd := exec.CommandContext(t.Context(), "sh", "-c", other)
			cmd.Args[0] = row.title
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			line := func() string {
				text := make([]byte, 64)
				n, _ := out.Read(text)
				return strings.TrimSpace(string(text[:n]))
			}
			if got := line(); got != "ready" {
				t.Fatalf("%q, want ready", got)
			}
			pid := strconv.Itoa(cmd.Process.Pid) + "\n"
			if err := os.WriteFile(filepath.Join(dir, "logs/nginx.pid"), []byte(pid), 0o600); err != nil {
				t.Fatal(err)
			}
			rotate()
			if _, err := io.WriteString(in, "report\n"); err != nil {
				t.Fatal(err)
			}
			if got := line(); got != row.want {
				t.Errorf("%q, want %q", got, row.want)
			}
		})
	}
}
