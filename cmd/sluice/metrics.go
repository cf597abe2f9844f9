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

// openMetrics opens the listener of --metrics. serve answers GET /metrics until ctx ends; with an empty address it does
// nothing.
func openMetrics(
	ctx context.Context, log *slog.Logger, addr string, from prometheus.Gatherer,
) (serve func(ctx context.Context) error, err error) {
	if addr == "" {
		return func(context.Context) error { return nil }, nil
	}
	ln, err := listen(ctx, "metrics", addr)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return serveMetrics(ctx, log, ln, from) }, nil
}

func serveMetrics(ctx context.Context, log *slog.Logger, ln net.Listener, from prometheus.Gatherer) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(from, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	log.Info("metrics are up", "listen", ln.Addr().String())
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
