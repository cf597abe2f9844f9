package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Kinds of failures.
const (
	KindRejected    = "rejected"    // the store rejected an order permanently
	KindError       = "error"       // an order failed with another error and is retried
	KindUnavailable = "unavailable" // a write while the store was unavailable
	KindQueue       = "queue"       // a failed call to the queue
)

// Metrics counts the worker's events. It must be safe for concurrent use.
type Metrics interface {
	BatchWritten(orders int, took time.Duration) // one transaction
	Failed(kind string)                          // one of the kinds
	LeaseLost()                                  // the lease of a batch ended before the batch
	Paused(kind string, loops int)               // +1 or -1 loop waiting for the store or the queue
}

// Counters exports Metrics to Prometheus.
type Counters struct {
	orders, batches, lost, reclaimed prometheus.Counter
	failures                         *prometheus.CounterVec
	seconds, sizes                   prometheus.Histogram
	paused                           *prometheus.GaugeVec
}

// NewCounters registers the counters. It panics if they are registered already.
func NewCounters(r prometheus.Registerer) *Counters {
	metrics := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return metrics.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	c := &Counters{
		orders:    counter("sluice_worker_orders_written_total", "Orders written to SQL, including repeated writes."),
		batches:   counter("sluice_worker_batches_total", "Transactions that wrote orders."),
		lost:      counter("sluice_worker_lost_leases_total", "Leases that expired while this worker was writing the batch."),
		reclaimed: counter("sluice_queue_reclaimed_total", "Messages requeued because the lease of their batch expired."),
		failures: metrics.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_worker_failures_total", Help: "Failures by kind: rejected, error, unavailable, queue.",
		}, []string{"kind"}),
		seconds: metrics.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_worker_write_seconds", Help: "Duration of a transaction.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 10),
		}),
		sizes: metrics.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_worker_batch_orders", Help: "Orders per transaction.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000},
		}),
		paused: metrics.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_worker_paused_loops", Help: "Loops that wait for the store (unavailable) or the queue (queue).",
		}, []string{"kind"}),
	}
	for _, kind := range []string{KindUnavailable, KindQueue} {
		c.paused.WithLabelValues(kind)
	}
	for _, kind := range []string{KindRejected, KindError, KindUnavailable, KindQueue} {
		c.failures.WithLabelValues(kind) // exported as 0 from the start, so that rates are defined
	}
	return c
}

// BatchWritten implements Metrics.
func (c *Counters) BatchWritten(orders int, took time.Duration) {
	c.orders.Add(float64(orders))
	c.batches.Inc()
	c.seconds.Observe(took.Seconds())
	c.sizes.Observe(float64(orders))
}

// Paused implements Metrics.
func (c *Counters) Paused(kind string, loops int) { c.paused.WithLabelValues(kind).Add(float64(loops)) }

// Failed implements Metrics.
func (c *Counters) Failed(kind string) { c.failures.WithLabelValues(kind).Inc() }

// LeaseLost implements Metrics.
func (c *Counters) LeaseLost() { c.lost.Inc() }

// Reclaimed counts requeued messages; see queue.Config.OnReclaim.
func (c *Counters) Reclaimed(n int) { c.reclaimed.Add(float64(n)) }
