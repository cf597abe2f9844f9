package nginx

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"sluice/internal/token"
)

// Reload makes the edge in Prefix apply changes of its files and its policy; its flags stay. Requests in progress are
// completed, and connections end: see docs/edge.md. It checks first: an ErrConfig changes nothing. It returns when only
// workers with the changes accept connections, and ErrNotReloaded if that takes longer than a minute or nginx ends. On
// systems other than Linux it does not wait for the workers. It uses Prefix, Binary and Secret only.
func (c Config) Reload(ctx context.Context) error {
	if c.Prefix == "" {
		return fmt.Errorf("%w: reload needs the directory of the edge", ErrConfig)
	}
	dir, master, err := running(c.Prefix)
	if err != nil {
		return err
	}
	bin, err := findBinary(ctx, c.Binary)
	if err != nil {
		return err
	}
	p := openedPrefix(dir)
	secret := c.Secret
	if secret == "" && !p.hasKeys() {
		// The master keeps its secret; the check needs any secret. With a key file there may be none.
		secret = strings.Repeat("-", token.MinSecret)
	}
	if err := check(ctx, bin, p, secret); err != nil {
		return err
	}
	old, known := childrenOf(master.Pid)
	if err := master.Signal(syscall.SIGHUP); err != nil {
		return fmt.Errorf("edge: reload: %w", err)
	}
	if !known {
		return nil
	}
	return awaitReload(ctx, master.Pid, old)
}

// reloadTime bounds the time in which nginx replaces its workers. It takes a fraction of a second on an idle machine.
const reloadTime = time.Minute

// awaitReload waits until a master has new workers and none of its old children accepts connections.
func awaitReload(ctx context.Context, master int, old []string) error {
	limited, cancel := context.WithTimeout(ctx, reloadTime)
	defer cancel()
	poll := time.NewTicker(pidPoll)
	defer poll.Stop()
	for {
		now, known := childrenOf(master)
		if !known {
			return fmt.Errorf("%w: nginx has ended", ErrNotReloaded)
		}
		accepting := slices.DeleteFunc(now, func(pid string) bool { return !accepts(pid) })
		isOld := func(pid string) bool { return slices.Contains(old, pid) }
		if len(accepting) > 0 && !slices.ContainsFunc(accepting, isOld) {
			return nil
		}
		select {
		case <-poll.C:
		case <-limited.Done():
			return cmp.Or(ctx.Err(), errSlowReload)
		}
	}
}

// ErrNotReloaded reports that nginx has accepted a reload and not completed it.
var ErrNotReloaded = errors.New("edge: reload")

var errSlowReload = fmt.Errorf("%w: nginx has not replaced its workers within %s: see its log",
	ErrNotReloaded, reloadTime)

// childrenOf returns the process ids of a process's children. Only Linux has this file.
func childrenOf(pid int) (pids []string, known bool) {
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	return strings.Fields(string(list)), err == nil
}

// accepts reports whether a process is a worker of nginx that accepts connections. A worker changes its title before it
// stops.
func accepts(pid string) bool {
	title, _ := os.ReadFile("/proc/" + pid + "/cmdline")
	return bytes.HasPrefix(title, []byte("nginx: worker process")) && !bytes.Contains(title, []byte("shutting down"))
}

// RunningPolicy returns the policy file of the edge in Prefix, which Reload applies, and whether the edge has a
// LeaseSocket, which rules with scope = "fleet" need.
func (c Config) RunningPolicy() (file string, leases bool, err error) {
	dir, _, err := running(c.Prefix)
	if err != nil {
		return "", false, err
	}
	p := openedPrefix(dir)
	main, err := os.ReadFile(filepath.Join(dir, "nginx/runtime/main.conf"))
	if err != nil {
		return "", false, fmt.Errorf("%w: %v", ErrConfig, err)
	}
	_, leases = variableOf(string(main), leaseVariable)
	if path, found := variableOf(string(main), policyVariable); found {
		return path, leases, nil
	}
	return filepath.Join(cmp.Or(p.root, dir), "lua/policy.lua"), leases, nil
}

// openedPrefix returns the prefix of a running edge.
func openedPrefix(dir string) *prefix {
	p := &prefix{dir: dir}
	if lua, err := os.Readlink(filepath.Join(dir, "lua")); err == nil {
		p.root = filepath.Dir(lua)
	}
	return p
}

// running returns the absolute path of a prefix, and the master process of the edge in it.
func running(prefix string) (dir string, master *os.Process, err error) {
	if dir, err = filepath.Abs(prefix); err != nil {
		return "", nil, fmt.Errorf("%w: %v", ErrConfig, err)
	}
	notRunning := fmt.Errorf("%w: no edge runs in %s", ErrConfig, dir)
	lock, err := os.Open(filepath.Join(dir, marker))
	if err != nil {
		return "", nil, notRunning
	}
	defer lock.Close()
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		return "", nil, notRunning // the pid file is stale
	}
	pid, err := readPID(dir)
	if err != nil {
		return "", nil, notRunning
	}
	master, err = os.FindProcess(pid)
	if err != nil || master.Signal(syscall.Signal(0)) != nil {
		return "", nil, notRunning
	}
	return dir, master, nil
}
