package admin

import (
	"github.com/prometheus/client_golang/prometheus"

	"sluice/internal/metric"
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
	metrics := metric.With(reg)
	return &Counters{
		cancelled: metrics.Counters("sluice_orders_cancelled_total",
			"Orders that this process has cancelled: unpaid at the end of their hold (hold), or by an admin (admin).",
			"by", byHold, byAdmin),
		returned: metrics.Counter("sluice_orders_units_returned_total",
			"Units of cancelled orders that this process has put on sale again."),
		returning: metrics.Gauge("sluice_orders_units_returning",
			"Units of cancelled orders that are not on sale again yet, because Redis did not answer."),
	}
}
