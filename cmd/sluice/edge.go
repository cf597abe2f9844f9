package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"sluice/gateway/policy"
	"sluice/nginx"
)

func (p *program) edgeCommand() *cobra.Command {
	var cfg nginx.Config
	var flags edgeFlags
	var check bool
	c := &cobra.Command{
		Use:   "edge",
		Short: "Run the nginx or OpenResty edge",
		Long: `Run nginx or OpenResty with sluice's configuration in the foreground. The command finds the binary
and, on Debian, the modules (apt-get install nginx-light libnginx-mod-http-lua). If the working
directory or --root has nginx/ and lua/, it uses those files in place, so that an edit and "sluice
edge reload" take effect; otherwise it uses the built-in ones. The edge verifies tokens with
` + envSecret + ` of the backends, --token-keys or both.`,
		Example: `  sluice edge --upstream http://10.0.0.1:8080 --upstream http://10.0.0.2:8080
  sluice edge --upstream unix:/run/sluice/backend.sock    # a backend on this machine
  sluice edge -t --upstream http://10.0.0.1:8080          # check the configuration and the policy
  sluice edge reload                                      # load a changed policy`,
		Annotations: map[string]string{handlesHangup: "reloads", runsUntilSignal: "test"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("root") {
				cfg.Root, cfg.Policy = workingRoot(), policyFile(cfg.Policy)
			}
			return edgeError(p.edge(cmd.Context(), cfg, flags, check))
		},
	}
	f := p.flags(c)
	f.edge(&flags, "a reload reads a file again", "TLS and HTTP/2")
	f.str(&cfg.Policy, "policy", envPolicy, "",
		"policy file (default: lua/policy.lua of --root or of the working directory, else the built-in one)")
	f.number(&cfg.Workers, "workers", "", 0, 0, 1024, "worker processes; 0: one per CPU")
	f.StringVar(&cfg.Root, "root", "",
		"directory with nginx/ and lua/; empty: the built-in files (default: the working directory, if it has them)")
	f.check(func(bad *problems) {
		if cfg.Root != "" && !isFile(filepath.Join(cfg.Root, "nginx", "nginx.conf")) {
			bad.add("--root %q: want a directory with nginx/ and lua/, or an empty value for the built-in files", cfg.Root)
		}
	})
	f.metrics(&cfg.Status)
	f.check(func(bad *problems) { bad.checkDistinct("metrics", cfg.Status, flags.listen) }) // nginx would accept it
	f.StringVar(&cfg.Binary, "nginx", "", "nginx or openresty binary (default: searched)")
	f.BoolVarP(&check, "test", "t", false, "check the configuration and the policy, and exit")
	c.PersistentFlags().StringVar(&cfg.Prefix, "prefix", "",
		"directory for generated files, logs and the pid (default: .sluice-edge in the working directory)")
	c.PersistentPreRunE = func(*cobra.Command, []string) (err error) {
		if cfg.Prefix == "" {
			cfg.Prefix, err = filepath.Abs(".sluice-edge")
		}
		return cmp.Or(p.checkLog(), err) // the root does this too, but cobra calls only the innermost PersistentPreRunE
	}
	c.AddCommand(p.edgeReload(&cfg.Prefix))
	return c
}

// edge runs nginx with the helpers that the flags require, or checks its configuration.
func (p *program) edge(ctx context.Context, cfg nginx.Config, flags edgeFlags, check bool) error {
	if file := edgePolicy(cfg); file != "" {
		read, err := policy.Read(file)
		if err == nil && flags.limitRedis == "" {
			err = read.CheckFleet(file)
		}
		if err != nil {
			return usageError{Err: err}
		}
	}
	cfg.Shared, cfg.Listen = flags.Shared, flags.listen
	errorLog := &nginxLog{log: p.logger()}
	defer errorLog.end()
	cfg.Log, cfg.Version = errorLog, version
	signals, stop := received(syscall.SIGHUP)
	defer stop()
	helpers := edgeHelpers{log: p.logger(), cfg: &cfg}
	defer helpers.close()
	if err := p.addHelpers(ctx, &helpers, flags); err != nil {
		return err
	}
	if !check {
		return p.runEdge(ctx, &cfg, flags.listen, signals)
	}
	cfg.Prefix = ""
	if err := cfg.Check(ctx); err != nil {
		return err
	}
	fmt.Fprintf(p.out, "nginx's configuration and the policy are valid (policy: %s)\n", policyName(edgePolicy(cfg)))
	return nil
}

// policyFile returns the policy file of an edge without --root: that of --policy, or lua/policy.lua of the working
// directory, or "" for the built-in one.
func policyFile(flag string) string {
	if flag == "" && isFile(defaultPolicy) {
		return defaultPolicy
	}
	return flag
}

func policyName(file string) string {
	return cmp.Or(file, "built-in; --policy FILE selects another one")
}

// edgePolicy returns the policy file of an edge, "" for the built-in one.
func edgePolicy(cfg nginx.Config) string {
	if file := filepath.Join(cfg.Root, "lua", "policy.lua"); cfg.Policy == "" && cfg.Root != "" && isFile(file) {
		return file
	}
	return cfg.Policy
}

// runEdge runs nginx until ctx ends. SIGHUP reloads it, as sluice edge reload does.
func (p *program) runEdge(ctx context.Context, cfg *nginx.Config, address string, signals <-chan os.Signal) error {
	listening := make(chan struct{})
	cfg.Listening = func() {
		attrs := []any{"address", address}
		if edgePolicy(*cfg) == "" { // built-in: the workers log only the path of a copy
			attrs = append(attrs, "policy", policyName(""))
		}
		p.logger().Info("edge listening", attrs...)
		close(listening)
	}
	ctx, stop := context.WithCancel(ctx)
	var reloads sync.WaitGroup
	reloads.Go(func() {
		select {
		case <-ctx.Done():
		case <-listening: // a signal that arrives before that waits
			onSignal(ctx, signals, func(os.Signal) { p.reloadOnHangup(ctx, *cfg) })
		}
	})
	defer reloads.Wait()
	defer stop()
	return cfg.Run(ctx)
}

func workingRoot() string {
	if wd, err := os.Getwd(); err == nil && isFile(filepath.Join(wd, "nginx", "nginx.conf")) &&
		isFile(filepath.Join(wd, "lua", "policy.lua")) {
		return wd
	}
	return ""
}

func isFile(path string) bool {
	f, err := os.Stat(path)
	return err == nil && f.Mode().IsRegular()
}

func edgeError(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return errInterrupted
	case errors.Is(err, nginx.ErrConfig):
		return usageError{Err: err}
	}
	return err
}

// edgeReload returns the command that reloads the edge in the directory that *prefix names when the command runs.
func (p *program) edgeReload(prefix *string) *cobra.Command {
	return &cobra.Command{
		Use: "reload",
		Short: "Reload the policy, the token keys and the configuration of the running edge; invalid ones are rejected " +
			"and the current ones stay",
		Long: `Reload the policy, the token keys and the configuration of the running edge. Invalid ones are rejected,
and the current ones stay.

Requests in progress are completed, for at most 15 seconds. Client connections end: for a tenth of a
second the old workers answer HTTP/1.x requests with "Connection: close", then they close the idle
connections. A client that sends at that moment sees a reset and must repeat its request.`,
		Example: `  sluice edge reload
  sluice edge reload --prefix /var/lib/sluice-edge`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			running := nginx.Config{Prefix: *prefix}
			running.Secret = p.getenv(envSecret)
			err := reloadEdge(cmd.Context(), running)
			if bad, ok := errors.AsType[policyError](err); ok {
				fmt.Fprintln(p.errOut, bad) // as sluice policy check does
				return errReported
			}
			return edgeError(err)
		},
	}
}

// policyError is an error in a policy: "FILE:LINE: problem".
type policyError struct{ error }

func reloadEdge(ctx context.Context, running nginx.Config) error {
	file, leases, err := running.RunningPolicy()
	if err != nil {
		return fmt.Errorf("%w: set --prefix to the directory of the running edge", err)
	}
	file = shortPath(file)
	read, err := policy.Read(file)
	if err != nil {
		return policyError{err}
	}
	if !leases {
		if err := read.CheckFleet(file); err != nil {
			return usageError{Err: err}
		}
	}
	return running.Reload(ctx)
}

// shortPath returns the relative path of a file below the working directory, and the path of any other.
func shortPath(file string) string {
	wd, err := os.Getwd()
	if err != nil {
		return file
	}
	if short, err := filepath.Rel(wd, file); err == nil && filepath.IsLocal(short) {
		return short
	}
	return file
}

func (p *program) reloadOnHangup(ctx context.Context, cfg nginx.Config) {
	switch err := reloadEdge(ctx, cfg); {
	case ctx.Err() != nil:
	case errors.Is(err, nginx.ErrNotReloaded):
		p.logger().Error("the reload is not complete, workers with the previous configuration may still accept connections",
			"err", oneLine(err))
	case err != nil:
		p.logger().Error("the reload is rejected, the previous policy, keys and configuration stay in use",
			"err", oneLine(err))
	default:
		p.logger().Info("reloaded")
	}
}
