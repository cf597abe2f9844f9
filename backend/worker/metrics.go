package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Kinds of failures that are counted.
const (
	KindRejected    = "rejected"    // an order that the store has refused for good
	KindError       = "error"       // an order that failed otherwise, and is tried again
	KindUnavailable = "unavailable" // a write that found the store away
	KindQueue       = "queue"       // a call that found the queue away
)

// Metrics is told what happens. It must be safe for concurrent use.
type Metrics interface {
	BatchWritten(orders int, took time.Duration) // one transaction
	Failed(kind string)                          // one of the kinds
	LeaseLost()                                  // a batch came to belong to another worker
	Paused(kind string, loops int)               // loops that begin (1) or end (-1) to wait for the store (KindUnavailable) or the queue (KindQueue)
}

type uncounted struct{}

func (uncounted) BatchWritten(int, time.Duration) {}
func (uncounted) Failed(string)                   {}
func (uncounted) LeaseLost()                      {}
func (uncounted) Paused(string, int)              {}

// Counters is Metrics in Prometheus.
type Counters struct {
	orders, batches, lost, reclaimed prometheus.Counter
	failures                         *prometheus.CounterVec
	seconds, sizes                   prometheus.Histogram
	paused                           *prometheus.GaugeVec
}

// NewCounters registers the counters. It panics when they are registered already.
func NewCounters(r prometheus.Registerer) *Counters {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	c := &Counters{
		orders:    counter("sluice_worker_orders_written_total", "Orders written into the order store, repetitions included."),
		batches:   counter("sluice_worker_batches_total", "Transactions in which orders were written."),
		lost:      counter("sluice_worker_lost_leases_total", "Batches that came to belong to another worker while this one worked on them."),
		reclaimed: counter("sluice_queue_reclaimed_total", "Messages given back because the lease of their batch ran out."),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_worker_failures_total", Help: "What went wrong, by kind: rejected, error, unavailable, queue.",
		}, []string{"kind"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_worker_write_seconds", Help: "Time that one transaction took.", Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 10),
		}),
		sizes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_worker_batch_orders", Help: "Orders in one transaction.", Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000},
		}),
		paused: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sluice_worker_paused_loops", Help: "Loops that wait because the order store (unavailable) or the queue (queue) is away.",
		}, []string{"kind"}),
	}
	for _, kind := range []string{KindUnavailable, KindQueue} {
		c.paused.WithLabelValues(kind)
	}
	for _, kind := range []string{KindRejected, KindError, KindUnavailable, KindQueue} {
		c.failures.WithLabelValues(kind) // shown as 0 from the start, so that a rate can be taken
	}
	r.MustRegister(c.orders, c.batches, c.lost, c.reclaimed, c.failures, c.seconds, c.sizes, c.paused)
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

// Reclaimed counts what queue.Config.Reclaimed tells.
func (c *Counters) Reclaimed(n int) { c.reclaimed.Add(float64(n)) }
