// Package metric declares the metrics that a package exports to Prometheus: a Set those that the package updates, a
// Collector those that are read at each scrape.
package metric

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Set registers metrics. Its methods panic if the name is registered already. The embedded Factory creates metrics
// with several labels.
type Set struct{ promauto.Factory }

// With returns a Set that registers metrics with r. If r is nil, they are not exported.
func With(r prometheus.Registerer) Set { return Set{promauto.With(r)} }

// Counter returns a counter without labels.
func (s Set) Counter(name, help string) prometheus.Counter {
	return s.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// Counters returns counters by one label. Those of values begin at 0, so that queries can compute their rates.
func (s Set) Counters(name, help, label string, values ...string) *prometheus.CounterVec {
	counters := s.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, value := range values {
		counters.WithLabelValues(value)
	}
	return counters
}

// Gauge returns a gauge without labels.
func (s Set) Gauge(name, help string) prometheus.Gauge {
	return s.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// Histogram returns a histogram without labels. buckets are upper bounds, ascending.
func (s Set) Histogram(name, help string, buckets ...float64) prometheus.Histogram {
	return s.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}
