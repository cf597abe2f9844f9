package main

import (
	"context"
	"errors"
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
)

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
