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

func (p *program) gatewayCommand() *cobra.Command {
	var cfg gateway.Config
	var edge edgeFlags
	var metrics, access string
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
			if cfg.PolicyPath = policyFile(cfg.PolicyPath); cfg.PolicyPath == "" {
				cfg.PolicySource = lua.Policy
			} else if _, err := policy.Read(cfg.PolicyPath); err != nil {
				return usageError{Err: err}
			}
			log := p.logger()
			signals, stop := received(syscall.SIGHUP, syscall.SIGUSR1)
			defer stop()
			registry := newRegistry()
			cfg.Upstreams, cfg.Secret, cfg.TokenKeys = edge.upstreams, edge.secret, edge.tokenKeys
			cfg.Expect = edge.expect
			cfg.PerClient, cfg.ProxyProtocol = edge.perClient, edge.proxyProtocol
			cfg.TLSCert, cfg.TLSKey = edge.tlsCert, edge.tlsKey
			cfg.CORSOrigins = edge.corsOrigins
			cfg.Logger, cfg.Registry, cfg.SaleNotifications = log, registry, true
			spans, err := p.openTracing(cmd.Context(), "sluice-gateway", registry)
			if err != nil {
				return err
			}
			defer spans.Close()
			cfg.Spans = edgetrace.New(spans)
			to, file, done, err := p.openAccessLog(cmd.Context(), access)
			if err != nil {
				return unlessStopped(cmd.Context(), err)
			}
			defer done()
			cfg.AccessLog = to
			fleet, closeFleet, err := openFleet(edge.limitRedis, log)
			if err != nil {
				return err
			}
			defer closeFleet()
			cfg.Fleet = fleet
			g, err := gateway.New(cfg)
			if err != nil {
				return usageError{Err: err}
			}
			if err := g.AwaitKeys(cmd.Context()); err != nil {
				return unlessStopped(cmd.Context(), err)
			}
			ln, err := inheritedListener(p.getenv)
			if ln == nil && err == nil {
				ln, err = listen(cmd.Context(), "listen", edge.listen)
			}
			if err != nil {
				return err
			}
			defer ln.Close()
			return p.runParts(cmd.Context(), metrics, registry, func(ctx context.Context) error {
				log.Info("gateway is up", "listen", ln.Addr().String(), "policy", policyName(cfg.PolicyPath), "keys", g.KeyNames())
				return g.Serve(ctx, ln)
			}, func(ctx context.Context) error {
				onSignal(ctx, signals, func(s os.Signal) { reopenAccessLog(ctx, file, log, s) })
				return nil
			})
		},
	}
	f := p.flags(c)
	f.edge(&edge, "a file is read again when it changes", "TLS (HTTP/1.1 only; HTTP/2 is the nginx edge's)")
	f.str(&cfg.PolicyPath, "policy", envPolicy, "",
		"policy file, read again when it changes (default: lua/policy.lua of the working directory, "+
			"else the built-in one)")
	f.StringVar(&access, "access-log", "", "file for a JSON object per request, in the format of the nginx edge; "+
		`"-" is standard output (default: no log); SIGUSR1 and SIGHUP reopen the file`)
	f.metrics(&metrics)
	return c
}
