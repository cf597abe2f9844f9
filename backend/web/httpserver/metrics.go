package httpserver

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Metrics counts the requests of all servers of a process. It is safe for concurrent use.
type Metrics struct{ requests *prometheus.CounterVec }

// NewMetrics registers the metrics with reg, which may be nil. It panics if reg has them already.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	return &Metrics{promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "sluice_http_requests_total", Help: "HTTP requests answered, by route and status code.",
	}, []string{"route", "code"})}
}

// routeCount counts the responses of one route. It looks up a counter once per status code, not once per request.
type routeCount struct {
	route  string
	vec    *prometheus.CounterVec
	byCode [600]atomic.Pointer[prometheus.Counter]
}

func (m *Metrics) route(route string) *routeCount { return &routeCount{route: route, vec: m.requests} }

func (r *routeCount) add(status int) {
	if status < 0 || status >= len(r.byCode) {
		return
	}
	counter := r.byCode[status].Load()
	if counter == nil {
		c := r.vec.WithLabelValues(r.route, strconv.Itoa(status))
		counter = &c
		r.byCode[status].Store(counter)
	}
	(*counter).Inc()
}
