package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice/backend/telemetry"
)

// newRegistry makes the registry of a process, with what Go and the operating system know of it.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

const metricsHelp = "where Prometheus is answered, host:port (default: nowhere)"

// serveMetrics answers GET /metrics until ctx ends; with an empty address it does nothing.
func serveMetrics(ctx context.Context, log *slog.Logger, addr string, from prometheus.Gatherer) error {
	if addr == "" {
		return nil
	}
	ln, err := listen(ctx, "metrics", addr)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(from, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	log.Info("metrics are up", "listen", ln.Addr().String())
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// openTracer makes the tracer of a process, or nil where the environment has no endpoint for traces. Close it when
// everything has ended.
func (p *program) openTracer(ctx context.Context, service string, log *slog.Logger) (*telemetry.Tracer, error) {
	tracer, err := telemetry.Open(ctx, p.getenv, service, version, log)
	if err != nil {
		return nil, usage("%w", err)
	}
	return tracer, nil
}

// trace makes what uses the stores trace what it does. tracer may be nil.
func (s *stores) trace(tracer *telemetry.Tracer) {
	s.tracer = tracer
	if tracer != nil {
		s.notes = telemetry.NewParents(s.redis, s.space)
	}
}
