package main

import (
	"net/url"

	"github.com/spf13/pflag"
)

// deskFlags are about the operators' desk.
func (p *program) deskFlags(f *pflag.FlagSet, cfg *backendConfig) {
	f.StringArrayVar(&cfg.edgeMetrics, "edge-metrics", p.list(envEdgeMetrics),
		"the metrics of an edge, or of another backend, that the operators' desk shows, http://host:port/metrics; repeatable ["+envEdgeMetrics+"]")
}

func (m *problems) checkMetricsURLs(urls []string) {
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
			m.add("--edge-metrics %q: want http://host:port/metrics", raw)
		}
	}
}

// deskToken describes where to find the token for the admin console of sluice up.
func deskToken(p *program, data string) string {
	if p.getenv(envAdminToken) != "" {
		return envAdminToken
	}
	return dataDir(data).path(adminTokenFile)
}
