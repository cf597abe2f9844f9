package audit

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxSaleSeries bounds the sales with a series. The counters include all sales.
const maxSaleSeries = 50

// Metrics counts the audits of this process. It is safe for concurrent use.
type Metrics struct {
	audits  *prometheus.CounterVec
	last    prometheus.Gauge
	seconds prometheus.Histogram
	sales   *saleCollector
}

// NewMetrics returns the metrics and registers them with reg, which may be nil. It panics if reg has them already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		audits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_audits_total",
			Help: "Audits of sales by this process: balanced, unbalanced, or failed (store unavailable).",
		}, []string{"result"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_audit_last_timestamp_seconds",
			Help: "Time of the last audit by this process; use the maximum over all processes. 0 before the first audit.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_audit_seconds", Help: "Duration of an audit of all sales of a shard.",
			Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}),
		sales: &saleCollector{
			desc: prometheus.NewDesc("sluice_audit_balanced",
				"Whether the last audit of a sale by this process balanced: 1 or 0. For all sales that did not, and some others.",
				[]string{"sale"}, nil),
			sales: map[string]audited{},
		},
	}
	for _, result := range []string{"balanced", "unbalanced", "failed"} {
		m.audits.WithLabelValues(result)
	}
	if reg != nil {
		reg.MustRegister(m.audits, m.last, m.seconds, m.sales)
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
	m.sales.audited(r.SaleID, audited{r.Balanced, time.Now()})
}

func (m *Metrics) failed() { m.audits.WithLabelValues("failed").Inc() }

func (m *Metrics) took(d time.Duration) { m.seconds.Observe(d.Seconds()) }

// audited is the result of the last audit of a sale by this process.
type audited struct {
	balanced bool
	at       time.Time
}

// saleCollector holds up to maxSaleSeries sales. It evicts balanced sales first, then the sale that was audited longest
// ago.
type saleCollector struct {
	desc *prometheus.Desc

	mu    sync.Mutex
	sales map[string]audited
}

func (c *saleCollector) audited(id string, a audited) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.sales[id]; there || len(c.sales) < maxSaleSeries {
		c.sales[id] = a
		return
	}
	var out string
	for other, b := range c.sales {
		was := c.sales[out]
		older := b.balanced == was.balanced && b.at.Before(was.at)
		if out == "" || b.balanced && !was.balanced || older {
			out = other
		}
	}
	if a.balanced && !c.sales[out].balanced {
		return
	}
	delete(c.sales, out)
	c.sales[id] = a
}

// Describe implements prometheus.Collector.
func (c *saleCollector) Describe(out chan<- *prometheus.Desc) { out <- c.desc }

// Collect implements prometheus.Collector.
func (c *saleCollector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, a := range c.sales {
		value := 0.0
		if a.balanced {
			value = 1
		}
		out <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, value, id)
	}
}
