package main

import (
	"net/url"

	"github.com/spf13/pflag"
)

// consoleFlags adds the flags of the admin console.
func (p *program) consoleFlags(f *pflag.FlagSet, cfg *backendConfig) {
	f.StringArrayVar(
		&cfg.edgeMetrics,
		"edge-metrics",
		p.list(envEdgeMetrics),
		"metrics URL of an edge or of another backend for the admin console, http://host:port/metrics; repeatable ["+envEdgeMetrics+"]",
	)
}

func (m *problems) checkMetricsURLs(urls []string) {
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
			m.add("--edge-metrics %q: want http://host:port/metrics", raw)
		}
	}
}

// consoleToken describes where to find the token for the admin console of sluice up.
func consoleToken(p *program, data string) string {
	if p.getenv(envAdminToken) != "" {
		return envAdminToken
	}
	return dataDir(data).path(adminTokenFile)
}
