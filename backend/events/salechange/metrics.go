package salechange

import (
	"github.com/prometheus/client_golang/prometheus"

	"sluice/internal/metric"
)

// Metrics counts the notifications of a Receiver.
type Metrics struct {
	up       prometheus.Gauge
	received *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg, which may be nil. It panics if reg has them already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	metrics := metric.With(reg)
	m := &Metrics{
		up: metrics.Gauge("sluice_sale_notifications_up",
			"Whether this process receives sale notifications; without them it sees changes within a second."),
		received: metrics.Counters("sluice_sale_notifications_received_total",
			"Sale notifications received, by type; unknown: not of this version.", "type"),
	}
	for _, t := range []Type{Opened, Paused, Closed, SoldOut, Restocked, Changed, Left, "unknown"} {
		m.received.WithLabelValues(string(t))
	}
	return m
}
