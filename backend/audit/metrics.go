package audit

import (
	"github.com/prometheus/client_golang/prometheus"

	"sluice/internal/metric"
)

// Metrics counts the audits of this process. It is safe for concurrent use.
type Metrics struct {
	audits  *prometheus.CounterVec
	last    prometheus.Gauge
	seconds prometheus.Histogram
}

// NewMetrics returns the metrics and registers them with reg, which may be nil. It panics if reg has them already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	metrics := metric.With(reg)
	return &Metrics{
		audits: metrics.Counters("sluice_audits_total",
			"Audits of sales by this process: balanced, unbalanced, or failed (store unavailable).",
			"result", "balanced", "unbalanced", "failed"),
		last: metrics.Gauge("sluice_audit_last_timestamp_seconds",
			"Time of the last audit by this process; use the maximum over all processes. 0 before the first audit."),
		seconds: metrics.Histogram("sluice_audit_seconds", "Duration of an audit of all sales of a shard.",
			prometheus.ExponentialBuckets(0.005, 2, 14)...),
	}
}

func (m *Metrics) audited(r Report) {
	result := "unbalanced"
	if r.Balanced {
		result = "balanced"
	}
	m.audits.WithLabelValues(result).Inc()
	m.last.SetToCurrentTime()
}
