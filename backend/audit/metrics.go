package audit

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxSaleSeries bounds the sales that have series of their own; the others are in the counters.
const maxSaleSeries = 50

// Metrics tell what the audits of this process have found. They are safe for concurrent use.
type Metrics struct {
	audits  *prometheus.CounterVec
	last    prometheus.Gauge
	seconds prometheus.Histogram
	sales   *saleCollector
}

// NewMetrics makes the metrics and registers them with reg, which may be nil. It panics when reg has them already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		audits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_audits_total", Help: "Audits of sales by this process: balanced, unbalanced, or failed when a store did not answer.",
		}, []string{"result"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_audit_last_timestamp_seconds", Help: "When this process audited sales last; the newest of all processes counts. 0: not yet.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_audit_seconds", Help: "How long it took to audit all sales of a shard.", Buckets: prometheus.ExponentialBuckets(0.005, 2, 14),
		}),
		sales: &saleCollector{
			desc: prometheus.NewDesc("sluice_audit_balanced", "Whether the last audit of a sale by this process balanced. Of the sales that did not, and of some others.",
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

// audited is what the last audit of a sale by this process has found.
type audited struct {
	balanced bool
	at       time.Time
}

// saleCollector remembers so many sales. One that does not balance takes the place of one that does, and one that was audited before all others makes room.
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
		if was := c.sales[out]; out == "" || b.balanced && !was.balanced || b.balanced == was.balanced && b.at.Before(was.at) {
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
