package salechange

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts the notifications of a Receiver.
type Metrics struct {
	up       prometheus.Gauge
	received *prometheus.CounterVec
}

// NewMetrics registers the metrics with reg, which may be nil. It panics if reg has them already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	metrics := promauto.With(reg)
	m := &Metrics{
		up: metrics.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_sale_notifications_up",
			Help: "Whether this process receives sale notifications; without them it sees changes within a second.",
		}),
		received: metrics.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_sale_notifications_received_total",
			Help: "Sale notifications received, by type; unknown: not of this version.",
		}, []string{"type"}),
	}
	for _, t := range []Type{Opened, Paused, Closed, SoldOut, Restocked, Changed, Left, "unknown"} {
		m.received.WithLabelValues(string(t))
	}
	return m
}
