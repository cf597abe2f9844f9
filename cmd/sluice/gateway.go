package main

import (
	"context"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"sluice/gateway"
	"sluice/gateway/policy"
	"sluice/lua"
)

func (p *program) gatewayCommand() *cobra.Command {
	var cfg gateway.Config
	var metrics, access string
	c := &cobra.Command{
		Use:     "gateway",
		Short:   "Run the Go edge alone: the same policy as the nginx edge, nothing to install",
		Example: `  sluice gateway --listen :80 --upstream http://10.0.0.1:8080 --upstream http://10.0.0.2:8080 --policy lua/policy.lua`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var bad problems
			bad.checkListen("listen", cfg.Listen)
			bad.checkUpstreams(cfg.Upstreams)
			cfg.Secret = p.getenv(envSecret)
			bad.checkTokens(cfg.Secret, cfg.TokenKeys)
			bad.checkTLS(cfg.TLSCert, cfg.TLSKey)
			bad.checkPerClient(cfg.PerClient)
			if err := bad.err(); err != nil {
				return err
			}
			if cfg.PolicyPath == "" {
				cfg.PolicySource = lua.Policy
			} else if err := policy.Check(cfg.PolicyPath); err != nil {
				return usageError{err}
			}
			log := p.logger()
			registry := newRegistry()
			cfg.Logger, cfg.Registry, cfg.SaleNotifications = log, registry, true
			follow := func(context.Context) error { return nil }
			if access != "" {
				to, tend, done, err := p.openAccessLog(access, log)
				if err != nil {
					return err
				}
				defer done()
				cfg.AccessLog, follow = to, tend
			}
			g, err := gateway.New(cfg)
			if err != nil {
				return usageError{err}
			}
			ln, err := listen(cmd.Context(), "listen", cfg.Listen)
			if err != nil {
				return err
			}
			log.Info("gateway is up", "listen", ln.Addr().String())
			group, ctx := errgroup.WithContext(cmd.Context())
			group.Go(func() error { return g.Serve(ctx, ln) })
			group.Go(func() error { return follow(ctx) })
			group.Go(func() error { return serveMetrics(ctx, log, metrics, registry) })
			return group.Wait()
		},
	}
	f := c.Flags()
	p.str(f, &cfg.Listen, "listen", envListen, defaultListen, "where to listen, host:port")
	f.StringArrayVar(
		&cfg.Upstreams,
		"upstream",
		p.list(envUpstream),
		"a backend, http://host:port; repeatable ["+envUpstream+"]",
	)
	p.str(
		f,
		&cfg.PolicyPath,
		"policy",
		envPolicy,
		"",
		"policy file, read again when it changes (default: the built-in lua/policy.lua)",
	)
	p.str(f, &cfg.TokenKeys, "token-keys", envKeys, "", keysHelp+"; read again when it changes")
	f.StringVar(
		&access,
		"access-log",
		"",
		`file for a JSON object per request, in the format of the nginx edge; "-" is standard output (default: no log); SIGUSR1 and SIGHUP reopen the file`,
	)
	clientFlags(
		f,
		&cfg.PerClient,
		&cfg.ProxyProtocol,
		&cfg.TLSCert,
		&cfg.TLSKey,
		"TLS (HTTP/1.1 only; HTTP/2 is the nginx edge's)",
	)
	f.StringVar(&metrics, "metrics", "", metricsHelp)
	return c
}
