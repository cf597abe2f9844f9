package audit

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts the audits of this process. It is safe for concurrent use.
type Metrics struct {
	audits  *prometheus.CounterVec
	last    prometheus.Gauge
	seconds prometheus.Histogram
}

// NewMetrics returns the metrics and registers them with reg, which may be nil. It panics if reg has them already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	metrics := promauto.With(reg)
	m := &Metrics{
		audits: metrics.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_audits_total",
			Help: "Audits of sales by this process: balanced, unbalanced, or failed (store unavailable).",
		}, []string{"result"}),
		last: metrics.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_audit_last_timestamp_seconds",
			Help: "Time of the last audit by this process; use the maximum over all processes. 0 before the first audit.",
		}),
		seconds: metrics.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_audit_seconds", Help: "Duration of an audit of all sales of a shard.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}),
	}
	for _, result := range []string{"balanced", "unbalanced", "failed"} {
		m.audits.WithLabelValues(result)
	}
	return m
}

func (m *Metrics) audited(r Report) {
	result := "unbalanced"
	if r.Balanced {
		result = "balanced"
	}
	m.audits.WithLabelValues(result).Inc()
	m.last.SetToCurrentTime()
}
