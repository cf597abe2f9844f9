package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"sluice/backend/redis/redisconn"
	"sluice/backend/store"
	"sluice/backend/telemetry"
	"sluice/internal/assemble"
	"sluice/internal/fleetlimit"
	"sluice/internal/tracing"
)

// openTracing returns the exporter of spans of a process that is named service in traces; it is nil without an
// endpoint.
func (p *program) openTracing(
	ctx context.Context, service string, registry prometheus.Registerer,
) (*tracing.Provider, error) {
	spans, err := tracing.Open(ctx, tracing.Config{
		Getenv: p.getenv, Service: service, Version: version, Log: p.logger(), Registry: registry,
	})
	if err != nil {
		return nil, usage("%w", err)
	}
	return spans, nil
}

func (p *program) openStores(
	ctx context.Context, service string, cfg assemble.StoresConfig, registry prometheus.Registerer,
) (s *assemble.Stores, closeAll func(), err error) {
	spans, err := p.openTracing(ctx, service, registry)
	if err != nil {
		return nil, nil, err
	}
	if s, err = p.tracedStores(ctx, cfg, spans); err != nil {
		spans.Close()
		return nil, nil, err
	}
	return s, func() { s.Close(); spans.Close() }, nil
}

func (p *program) tracedStores(
	ctx context.Context, cfg assemble.StoresConfig, spans *tracing.Provider,
) (*assemble.Stores, error) {
	cfg.Log = p.logger()
	if spans != nil {
		cfg.Tracer = telemetry.New(spans, version)
	}
	s, err := assemble.OpenStores(ctx, cfg)
	err = orInterrupted(ctx, err)
	if bad, ok := errors.AsType[*store.URLError](err); ok {
		source := "--database"
		if cfg.Database == p.getenv(envDatabase) {
			source = envDatabase
		}
		return nil, usage("%s: %s", source, bad.Detail)
	}
	return s, err
}

// newRegistry returns the registry of a process, with the metrics of Go, of the process and of the build.
func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	promauto.With(r).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_build_info", Help: "1. The labels describe the program.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version()},
	}, func() float64 { return 1 })
	return r
}

// runParts runs the parts of a process until ctx ends or one of them returns an error. It also serves metrics at the
// address of --metrics, unless that is empty.
func (p *program) runParts(
	ctx context.Context, metrics string, from prometheus.Gatherer, parts ...func(context.Context) error,
) error {
	if metrics != "" {
		ln, err := listen(ctx, "metrics", metrics)
		if err != nil {
			return err
		}
		parts = append(parts, func(ctx context.Context) error { return serveMetrics(ctx, p.logger(), ln, from) })
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, run := range parts {
		g.Go(func() error { return run(ctx) })
	}
	return g.Wait()
}

func serveMetrics(ctx context.Context, log *slog.Logger, ln net.Listener, from prometheus.Gatherer) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(from, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	server := &http.Server{
		Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	log.Info("metrics are up", "listen", ln.Addr().String())
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// openFleet returns a client for limits of the fleet, or nil without a URL. Call done when it is no longer used.
func openFleet(url string, log *slog.Logger) (client *fleetlimit.Client, done func(), err error) {
	if url == "" {
		return nil, func() {}, nil
	}
	redisconn.Quiet(log)
	server, err := redisconn.Open(url)
	if err != nil {
		return nil, nil, usage("--limit-redis: %w", err)
	}
	client = fleetlimit.NewClient(server, fleetlimit.Now)
	return client, inBackground(client.Run, func() {
		if err := server.Close(); err != nil {
			log.Warn("closing the limit Redis", "err", fmt.Sprint(err))
		}
	}), nil
}
