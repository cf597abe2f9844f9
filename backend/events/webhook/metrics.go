package webhook

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Counters is Metrics in Prometheus, and counts what the group writes.
type Counters struct {
	attempts *prometheus.CounterVec
	seconds  prometheus.Histogram
	added    prometheus.Counter
}

// NewCounters registers the counters. It panics when they are registered already.
func NewCounters(r prometheus.Registerer) *Counters {
	c := &Counters{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_webhook_attempts_total",
			Help: "Webhooks sent by this process, by what became of them: delivered, failed, given_up, released (a stop came " +
				"first) or lost (another process has it by now).",
		}, []string{"endpoint", "outcome"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_webhook_attempt_seconds", Help: "Time until an endpoint had answered, or had not.",
			Buckets: []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 15, 30},
		}),
		added: prometheus.NewCounter(
			prometheus.CounterOpts{
				Name: "sluice_webhook_deliveries_total",
				Help: "Deliveries that this process has written, one for each event and endpoint.",
			},
		),
	}
	r.MustRegister(c.attempts, c.seconds, c.added)
	return c
}

// Attempted is Metrics.
func (c *Counters) Attempted(endpoint, outcome string, n int) {
	c.attempts.WithLabelValues(endpoint, outcome).Add(float64(n))
}

// Took is Metrics.
func (c *Counters) Took(d time.Duration) { c.seconds.Observe(d.Seconds()) }

// Added is for Handler.
func (c *Counters) Added(n int64) { c.added.Add(float64(n)) }

// scrapeTimeout bounds the look that a scrape costs.
const scrapeTimeout = time.Second

type collector struct {
	list                                 func(context.Context) ([]Endpoint, error)
	up, waiting, failed, oldest, failing *prometheus.Desc
}

// NewCollector makes the gauges of the endpoints: sluice_webhook_waiting, sluice_webhook_failed,
// sluice_webhook_oldest_seconds and sluice_webhook_failing. sluice_webhook_up is 0, and alone, when they could not be
// read in time.
func NewCollector(admin *Admin) prometheus.Collector {
	gauge := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("sluice_webhook_"+name, help, labels, nil)
	}
	return &collector{
		list:    admin.List,
		up:      gauge("up", "Whether the endpoints could be looked at."),
		waiting: gauge("waiting", "Deliveries that are not delivered yet.", "endpoint"),
		failed:  gauge("failed", "Deliveries that were given up.", "endpoint"),
		oldest:  gauge("oldest_seconds", "Age of the oldest delivery that is not delivered yet.", "endpoint"),
		failing: gauge(
			"failing",
			"Whether the endpoint fails: 1 from when a delivery is given up, or many attempts in a row have failed, until "+
				"one succeeds; or it is disabled.",
			"endpoint",
		),
	}
}

func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.up, c.waiting, c.failed, c.oldest, c.failing} {
		out <- d
	}
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	all, err := c.list(ctx)
	if err != nil {
		gauge(c.up, 0)
		return
	}
	gauge(c.up, 1)
	for _, e := range all {
		failing := 0.0
		if !e.FailingSince.IsZero() || e.State == EndpointDisabled {
			failing = 1
		}
		gauge(c.waiting, float64(e.Waiting), e.ID)
		gauge(c.failed, float64(e.Failed), e.ID)
		gauge(c.oldest, e.Oldest.Seconds(), e.ID)
		gauge(c.failing, failing, e.ID)
	}
}
