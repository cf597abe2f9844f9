package admin

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Counters count cancelled orders and their units. They are safe for concurrent use.
type Counters struct {
	cancelled *prometheus.CounterVec
	returned  prometheus.Counter
	returning prometheus.Gauge
}

// The values of the label "by".
const (
	byHold  = "hold"
	byAdmin = "admin"
)

// NewCounters registers the counters with reg, which may be nil. It panics if reg has them already.
func NewCounters(reg prometheus.Registerer) *Counters {
	metrics := promauto.With(reg)
	c := &Counters{
		cancelled: metrics.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_orders_cancelled_total",
			Help: "Orders that this process has cancelled: unpaid at the end of their hold (hold), or by an admin (admin).",
		}, []string{"by"}),
		returned: metrics.NewCounter(prometheus.CounterOpts{
			Name: "sluice_orders_units_returned_total",
			Help: "Units of cancelled orders that this process has put on sale again.",
		}),
		returning: metrics.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_orders_units_returning",
			Help: "Units of cancelled orders that are not on sale again yet, because Redis did not answer.",
		}),
	}
	for _, by := range []string{byHold, byAdmin} {
		c.cancelled.WithLabelValues(by)
	}
	return c
}
