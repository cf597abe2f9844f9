package containers

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

var keep = flag.String(
	"data",
	"",
	"directory for the engine's images and build cache, kept for the next run; default: nothing is kept",
)

// Variables with the paths of files that are prepared outside of the namespaces of the test, where there is a network.
const (
	insideVariable  = "SLUICE_CONTAINERS_DIR"
	composeVariable = "SLUICE_CONTAINERS_COMPOSE"
	modulesVariable = "SLUICE_CONTAINERS_MODULES"
)

// TestMain runs the tests in namespaces of their own.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(insideVariable) != "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := enter(ctx)
	stop()
	if err == nil {
		return
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() < 0 {
		fmt.Fprintln(os.Stderr, "containers:", err)
	}
	os.Exit(1)
}

// enter prepares the files that need the network, and starts this program again in its own network, mount and process
// namespaces. It returns when these have ended.
func enter(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("the test starts a Docker engine: run it as root")
	}
	var missing []string
	for _, program := range []string{"dockerd", "unshare", "busybox"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, program)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not installed: %s (see .ci/install)", strings.Join(missing, ", "))
	}
	// the first call compiles docker compose
	compose, err := output(ctx, "compose", "go", "tool", "-n", "github.com/docker/compose/v2/cmd")
	if err != nil {
		return err
	}
	if _, err := output(ctx, "../..", "go", "mod", "download"); err != nil {
		return err
	}
	modules, err := output(ctx, "../..", "go", "env", "GOMODCACHE")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sluice-containers-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer removeGroups(filepath.Base(dir))

	cmd := exec.CommandContext(
		ctx,
		"unshare",
		slices.Concat([]string{"--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--"}, os.Args)...)
	cmd.Env = append(os.Environ(), insideVariable+"="+dir, composeVariable+"="+compose, modulesVariable+"="+modules)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	// an interrupt ends it through ctx
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	return cmd.Run()
}

func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// removeGroups removes the control groups of an engine after its processes have ended. The kernel removes none in use.
func removeGroups(name string) {
	var groups []string
	for _, pattern := range []string{"/sys/fs/cgroup/", "/sys/fs/cgroup/*/"} {
		tops, _ := filepath.Glob(pattern + name)
		for _, top := range tops {
			_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					groups = append(groups, path)
				}
				return nil
			})
		}
	}
	for _, group := range slices.Backward(groups) { // nested ones first
		_ = os.Remove(group)
	}
}
