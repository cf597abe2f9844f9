package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"sluice/internal/metric"
)

type metrics struct {
	connections prometheus.Gauge
	refused     prometheus.Counter
	streams     prometheus.Gauge
	failures    *prometheus.CounterVec   // by upstream and failure
	seconds     *prometheus.HistogramVec // by upstream
}

// newMetrics creates the metrics and registers them, unless registry is nil.
func newMetrics(registry prometheus.Registerer) *metrics {
	register := metric.With(registry)
	return &metrics{
		connections: register.Gauge("sluice_edge_connections", "Open client connections."),
		refused: register.Counter("sluice_edge_connections_refused_total",
			"Connections refused because too many were open."),
		streams: register.Gauge("sluice_edge_event_streams", "Open event streams."),
		failures: register.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_edge_upstream_failures_total", Help: "Failed attempts to reach a backend, by failure."},
			[]string{"upstream", "failure"}),
		seconds: register.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_edge_upstream_seconds", Help: "Time until a backend began to respond."}, []string{"upstream"}),
	}
}
