package main

import (
	"context"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"sluice/gateway"
	"sluice/gateway/policy"
	"sluice/internal/edgetrace"
	"sluice/lua"
)

type gatewayFlags struct {
	edgeFlags
	cfg             gateway.Config
	metrics, access string
}

func (p *program) gatewayCommand() *cobra.Command {
	var g gatewayFlags
	c := &cobra.Command{
		Use:   "gateway",
		Short: "Run the Go edge, with the same policy as the nginx edge",
		Long: `Run the Go edge, which has the same policy as the nginx edge and needs no nginx. It verifies tokens with
` + envSecret + ` of the backends, --token-keys or both. Started by a systemd socket unit, it uses
the unit's listener instead of --listen.`,
		Example: `  sluice gateway --listen :80 --upstream http://10.0.0.1:8080 --upstream http://10.0.0.2:8080 --policy lua/policy.lua
  sluice gateway --upstream unix:/run/sluice/backend.sock        # a backend on this machine`,
		Annotations: map[string]string{handlesHangup: "reopens the access log", runsUntilSignal: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			g.cfg.PolicyPath = policyFile(g.cfg.PolicyPath)
			if g.cfg.PolicyPath == "" {
				g.cfg.PolicySource = lua.Policy
			} else if _, err := policy.Read(g.cfg.PolicyPath); err != nil {
				return usageError{Err: err}
			}
			return p.gateway(cmd.Context(), g)
		},
	}
	f := p.flags(c)
	f.edge(&g.edgeFlags, "a file is read again when it changes", "TLS (HTTP/1.1 only; for HTTP/2 use the nginx edge)")
	f.str(&g.cfg.PolicyPath, "policy", envPolicy, "",
		"policy file, read again when it changes (default: lua/policy.lua of the working directory, "+
			"else the built-in one)")
	f.StringVar(&g.access, "access-log", "", "file for a JSON object per request, in the format of the nginx edge; "+
		`"-" is standard output (default: no log); SIGUSR1 and SIGHUP reopen the file`)
	f.metrics(&g.metrics)
	return c
}

// newGateway returns a gateway with its token keys. It waits for keys at a URL, see token.Keys.Await.
func newGateway(ctx context.Context, cfg gateway.Config) (*gateway.Gateway, error) {
	g, err := gateway.New(cfg)
	if err != nil {
		return nil, usageError{Err: err}
	}
	return g, orInterrupted(ctx, g.AwaitKeys(ctx))
}

func (p *program) gateway(ctx context.Context, flags gatewayFlags) error {
	cfg, log, registry := flags.cfg, p.logger(), newRegistry()
	signals, stop := received(syscall.SIGHUP, syscall.SIGUSR1)
	defer stop()
	spans, err := p.openTracing(ctx, "sluice-gateway", registry)
	if err != nil {
		return err
	}
	defer spans.Close()
	access, file, closeAccess, err := p.openAccessLog(ctx, flags.access)
	if err != nil {
		return orInterrupted(ctx, err)
	}
	defer closeAccess()
	fleet, closeFleet, err := openFleet(flags.limitRedis, log)
	if err != nil {
		return err
	}
	defer closeFleet()
	cfg.Shared = flags.Shared
	cfg.Logger, cfg.Registry, cfg.SaleNotifications = log, registry, true
	cfg.Spans, cfg.AccessLog, cfg.Fleet = edgetrace.New(spans), access, fleet
	g, err := newGateway(ctx, cfg)
	if err != nil {
		return err
	}
	ln, err := inheritedListener(p.getenv)
	if ln == nil && err == nil {
		ln, err = listen(ctx, "listen", flags.listen)
	}
	if err != nil {
		return err
	}
	defer ln.Close()
	return p.runParts(ctx, flags.metrics, registry, func(ctx context.Context) error {
		log.Info("gateway is up", "listen", ln.Addr().String(), "policy", policyName(cfg.PolicyPath), "keys", g.KeyNames())
		return g.Serve(ctx, ln)
	}, func(ctx context.Context) error {
		onSignal(ctx, signals, func(s os.Signal) { reopenAccessLog(ctx, file, log, s) })
		return nil
	})
}
