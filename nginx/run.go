package nginx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Run checks the configuration, starts nginx in the foreground and serves until ctx is done. Then it stops accepting,
// lets requests finish for at most Grace, and returns nil. A configuration error is an ErrConfig, before nginx serves.
func (c Config) Run(ctx context.Context) error {
	c, err := c.checked()
	if err != nil {
		return err
	}
	if c.Prefix == "" {
		if c.Prefix, err = temporary(); err != nil {
			return err
		}
		defer os.RemoveAll(c.Prefix)
	}
	p, bin, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	defer p.close()
	if err := c.awaitAddresses(ctx); err != nil {
		return err
	}
	return serve(ctx, bin, c)
}

// awaitAddresses returns an ErrConfig if another process listens on an address of c. A port may be in use for a moment
// after an edge was killed, so it tries as long as nginx does. It leaves other errors of a listener to nginx, which may
// have more privileges.
func (c Config) awaitAddresses(ctx context.Context) error {
	var inUse []string
	for _, l := range []struct{ flag, address string }{{"--listen", c.Listen}, {"--metrics", c.Status}} {
		for tries := 0; l.address != "" && isInUse(ctx, l.address); tries++ {
			if tries == bindTries {
				inUse = append(inUse, fmt.Sprintf("%s %s: the address is in use: stop the process that listens there, or choose "+
					"another address", l.flag, l.address))
				break
			}
			select {
			case <-time.After(bindPause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if len(inUse) > 0 {
		return fmt.Errorf("%w: %s", ErrConfig, strings.Join(inUse, "\n"))
	}
	return nil
}

// nginx tries to bind five times, in intervals of half a second.
const (
	bindTries = 25
	bindPause = 100 * time.Millisecond
)

// isInUse reports whether another process listens on an address of nginx's directive listen.
func isInUse(ctx context.Context, address string) bool {
	network := "tcp"
	if port, all := strings.CutPrefix(address, "*:"); all {
		network, address = "tcp4", ":"+port
	} else if strings.HasPrefix(address, "[") {
		network = "tcp6" // not IPv4 too
	}
	ln, err := new(net.ListenConfig).Listen(ctx, network, address)
	if err != nil {
		return errors.Is(err, syscall.EADDRINUSE)
	}
	_ = ln.Close()
	return false
}

// Check reports whether Run would start with this configuration, policy and secret. It serves nothing and does not
// touch a running edge. Its error is an ErrConfig.
func (c Config) Check(ctx context.Context) error {
	c, err := c.checked()
	if err != nil {
		return err
	}
	if c.Prefix, err = temporary(); err != nil {
		return err
	}
	defer os.RemoveAll(c.Prefix)
	p, _, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	p.close()
	return nil
}

// prepare fills the prefix and checks it with nginx. The caller closes the prefix.
func (c Config) prepare(ctx context.Context) (*prefix, binary, error) {
	bin, err := findBinary(ctx, c.Binary)
	if err != nil {
		return nil, bin, err
	}
	p, err := openPrefix(c.Prefix, c.Root)
	if err != nil {
		return nil, bin, err
	}
	if err = p.fill(c, bin); err != nil {
		err = fmt.Errorf("edge: %w", err)
	} else {
		err = check(ctx, bin, p, c.Secret)
	}
	if err != nil {
		p.close()
		return nil, bin, err
	}
	return p, bin, nil
}

// pidFile is written by nginx when its listeners are open.
const pidFile = "logs/nginx.pid"

func readPID(dir string) (int, error) {
	text, err := os.ReadFile(filepath.Join(dir, pidFile))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// temporaryName begins the names of temporary directories.
const temporaryName = "sluice-edge-"

func temporary() (string, error) {
	dir, err := os.MkdirTemp("", temporaryName)
	if err != nil {
		return "", fmt.Errorf("edge: %w", err)
	}
	return dir, nil
}

// initLine is required in nginx.conf: without it, workers have no policy and answer every request with 500.
const initLine = `init_by_lua_block { require("sluice.edge").init() }`

var initBlock = regexp.MustCompile(`(?m)^[^#\n]*\binit_by_lua`)

// check runs nginx's own test of nginx.conf, and check.conf for the policy and the secret.
func check(ctx context.Context, bin binary, p *prefix, secret string) error {
	files, err := output(ctx, bin, p, secret, append(bin.args(p.dir, "nginx.conf"), "-T", "-q"))
	if err == nil && !initBlock.MatchString(files) {
		err = fmt.Errorf("%w: nginx.conf lacks %s", ErrConfig, initLine)
	}
	if err == nil {
		_, err = output(ctx, bin, p, secret, bin.args(p.dir, "check.conf", "daemon off"))
	}
	return err
}

// output returns what nginx prints. If nginx exits with another status than 0, the error wraps ErrConfig.
func output(ctx context.Context, bin binary, p *prefix, secret string, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, bin.path, args...)
	cmd.Env = environment(secret)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return "", fmt.Errorf("%w: %s", ErrConfig, p.source(firstError(string(out))))
	}
	if err != nil {
		return "", fmt.Errorf("edge: %w", err)
	}
	return string(out), nil
}

// plainVariable lists the accelerators that are switched off, see docs/edge.md.
const plainVariable = "SLUICE_EDGE_PLAIN"

// environment returns the environment of nginx: that of this process with the secret, and without the paths of the
// policy and the keys, which are in runtime/main.conf, where a reload finds them.
func environment(secret string) []string {
	env := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "SLUICE_") && !strings.HasPrefix(pair, plainVariable+"=")
	})
	return append(env, "SLUICE_TOKEN_SECRET="+secret)
}

// pidPoll is the interval at which the start and the reload of nginx are polled.
const pidPoll = 20 * time.Millisecond

// serve runs the master until it ends or ctx is done, and then stops it. The master has a process group of its own: an
// interrupt from the terminal would not stop it gracefully.
func serve(ctx context.Context, bin binary, c Config) error {
	cmd := exec.Command(bin.path, bin.args(c.Prefix, "nginx.conf", "daemon off")...)
	cmd.Env = environment(c.Secret)
	cmd.Stdout, cmd.Stderr = c.Log, c.Log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Workers hold the pipe of the log as well, and may outlive a master that was killed.
	cmd.WaitDelay = 2 * time.Second
	ended := make(chan error, 1)
	if err := startBound(cmd, ended); err != nil {
		return fmt.Errorf("edge: %w", err)
	}
	poll := time.NewTicker(pidPoll)
	defer poll.Stop()
	for ctx.Err() == nil {
		select {
		case err := <-ended:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGQUIT) // workers outlive a master that was killed
			return fmt.Errorf("edge: nginx exited: %w", cmp.Or(err, errors.New("exit status 0")))
		case <-poll.C:
			if pid, err := readPID(c.Prefix); err == nil && pid == cmd.Process.Pid {
				poll.Stop()
				if c.Listening != nil {
					c.Listening()
				}
			}
		case <-ctx.Done():
		}
	}
	return stop(cmd.Process, ended, c.Grace)
}

// stop ends the master and its workers. QUIT lets requests finish; TERM does not; KILL is for a master that hangs.
func stop(master *os.Process, ended <-chan error, grace time.Duration) error {
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGQUIT, grace}, {syscall.SIGTERM, 2 * time.Second}, {syscall.SIGKILL, time.Minute}} {
		if step.signal == syscall.SIGKILL {
			_ = syscall.Kill(-master.Pid, syscall.SIGKILL) // the workers too
		} else {
			_ = master.Signal(step.signal)
		}
		select {
		case <-ended:
			return nil
		case <-time.After(step.wait):
		}
	}
	return errors.New("edge: nginx cannot be stopped")
}

// firstError returns the line of nginx's output that describes the error. For a Lua module with a syntax error it
// includes the next line, where LuaJIT writes the reason.
func firstError(out string) string {
	last := ""
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if _, what, found := strings.Cut(line, "init_by_lua error: "); found {
			if strings.HasPrefix(what, "error loading module ") && i+1 < len(lines) {
				what += " " + strings.TrimSpace(lines[i+1])
			}
			return what
		}
		for _, level := range []string{"[emerg] ", "[crit] ", "[alert] ", "[error] "} {
			if _, what, found := strings.Cut(line, level); found {
				if prefix, rest, found := strings.Cut(what, ": "); found && strings.Contains(prefix, "#") {
					what = rest // process and thread
				}
				return what
			}
		}
		if line != "" {
			last = line
		}
	}
	if last == "" {
		return "nginx rejected its configuration without a message"
	}
	return last
}
