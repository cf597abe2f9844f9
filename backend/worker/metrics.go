package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/internal/metric"
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
	LeaseLost()                                  // the lease of a batch ended before the batch was acknowledged
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
	metrics := metric.With(r)
	c := &Counters{
		orders:  metrics.Counter("sluice_worker_orders_written_total", "Orders written to SQL, including repeated writes."),
		batches: metrics.Counter("sluice_worker_batches_total", "Transactions that wrote orders."),
		lost: metrics.Counter("sluice_worker_lost_leases_total",
			"Leases that expired while this worker was writing the batch."),
		reclaimed: metrics.Counter("sluice_queue_reclaimed_total",
			"Messages requeued because the lease of their batch expired."),
		failures: metrics.Counters("sluice_worker_failures_total", "Failures by kind: rejected, error, unavailable, queue.",
			"kind", KindRejected, KindError, KindUnavailable, KindQueue),
		seconds: metrics.Histogram("sluice_worker_write_seconds", "Duration of a transaction.",
			prometheus.ExponentialBuckets(0.001, 2.5, 10)...),
		sizes: metrics.Histogram("sluice_worker_batch_orders", "Orders per transaction.",
			1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
		paused: metrics.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_worker_paused_loops", Help: "Loops that wait for the store (unavailable) or the queue (queue).",
		}, []string{"kind"}),
	}
	for _, kind := range []string{KindUnavailable, KindQueue} {
		c.paused.WithLabelValues(kind)
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
