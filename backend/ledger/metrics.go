package ledger

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics tell what the audits of this process have found. They are safe for concurrent use.
type Metrics struct {
	audits   *prometheus.CounterVec
	balanced *prometheus.GaugeVec
	last     *prometheus.GaugeVec
	seconds  prometheus.Histogram
}

// NewMetrics makes the metrics and registers them with reg, which may be nil. It panics when reg has them already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		audits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_ledger_audits_total", Help: "Audits of sales by this process: balanced, unbalanced, or failed when a store did not answer.",
		}, []string{"result"}),
		balanced: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_ledger_balanced", Help: "Whether the last audit of a sale by this process balanced.",
		}, []string{"sale"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_ledger_last_audit_timestamp_seconds", Help: "When this process audited a sale last; the newest of all processes counts.",
		}, []string{"sale"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_ledger_audit_seconds", Help: "How long it took to audit all sales of a lane.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}),
	}
	for _, result := range []string{"balanced", "unbalanced", "failed"} {
		m.audits.WithLabelValues(result)
	}
	if reg != nil {
		reg.MustRegister(m.audits, m.balanced, m.last, m.seconds)
	}
	return m
}

func (m *Metrics) audited(r Report) {
	result, balanced := "unbalanced", 0.0
	if r.Balanced {
		result, balanced = "balanced", 1
	}
	m.audits.WithLabelValues(result).Inc()
	m.balanced.WithLabelValues(r.SaleID).Set(balanced)
	m.last.WithLabelValues(r.SaleID).SetToCurrentTime()
}

func (m *Metrics) failed() { m.audits.WithLabelValues("failed").Inc() }

func (m *Metrics) took(d time.Duration) { m.seconds.Observe(d.Seconds()) }
