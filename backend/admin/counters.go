package admin

import "github.com/prometheus/client_golang/prometheus"

// Counters tell of cancelled orders and their units. They are safe for concurrent use.
type Counters struct {
	cancelled *prometheus.CounterVec
	returned  prometheus.Counter
	returning prometheus.Gauge
}

// NewCounters makes the counters and registers them with reg, which may be nil. It panics when reg has them already.
func NewCounters(reg prometheus.Registerer) *Counters {
	c := &Counters{
		cancelled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_order_cancelled_total", Help: "Order rows that this process has cancelled: not paid in time (hold), or by an operator (desk).",
		}, []string{"by"}),
		returned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_order_units_returned_total", Help: "Units of cancelled orders that this process has put on sale again.",
		}),
		returning: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_order_units_returning", Help: "Units of cancelled orders that could not be put on sale again yet.",
		}),
	}
	for _, by := range []string{"hold", "desk"} {
		c.cancelled.WithLabelValues(by)
	}
	if reg != nil {
		reg.MustRegister(c.cancelled, c.returned, c.returning)
	}
	return c
}
