package livestats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice/backend/queue"
	"sluice/backend/store"
)

// world is an in-memory deployment.
type world struct {
	now    time.Time
	shards []*queue.Stats
	total  store.Totals
	log    int64
	broken error
}

func (w *world) ByShard(context.Context) ([]*queue.Stats, error) { return w.shards, w.broken }
func (w *world) Within([]*queue.Stats) (time.Duration, bool)     { return 3 * time.Second, true }
func (w *world) Shard(int, *queue.Stats) queue.Pace              { return queue.Pace{Known: true, PerSecond: 10} }
func (w *world) Totals(context.Context) (store.Totals, error)    { return w.total, w.broken }
func (w *world) Log(context.Context, store.LogQuery) ([]store.LogEntry, error) {
	return []store.LogEntry{{Number: w.log}}, w.broken
}

func newWorld() *world { return &world{now: time.Unix(1000, 0), shards: []*queue.Stats{{}, {}}} }

func (w *world) stats(own prometheus.Gatherer, urls ...string) *Stats {
	return New(
		Config{
			Queue: w,
			Pace:  w,
			Store: w,
			Own:   own,
			URLs:  urls,
			Log:   slog.New(slog.DiscardHandler),
			Now:   func() time.Time { return w.now },
		},
	)
}

// tick takes the next sample, a second later.
func (w *world) tick(t *testing.T, b *Stats) Sample {
	t.Helper()
	w.now = w.now.Add(time.Second)
	b.RunOnce(t.Context())
	samples, _ := b.Since(0)
	return samples[len(samples)-1]
}

// A sample names the shards that its counts omit.
func TestUnavailableShards(t *testing.T) {
	w := newWorld()
	b := w.stats(nil)
	if s := w.tick(t, b); s.Queue.Unavailable != nil {
		t.Errorf("without one: %v", s.Queue.Unavailable)
	}
	w.shards = []*queue.Stats{nil, {Ready: 2}, nil}
	if s := w.tick(t, b); s.Queue.Ready != 2 || !slices.Equal(s.Queue.Unavailable, []int{0, 2}) {
		t.Errorf("%d ready, unavailable: %v", s.Queue.Ready, s.Queue.Unavailable)
	}
}

// The list of rules is never null in JSON, also before the first response of a source and while it does not respond.
func TestSourcesHaveAListOfRules(t *testing.T) {
	w := newWorld()
	broken := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(broken.Close)
	b := w.stats(prometheus.NewRegistry(), broken.URL)
	for _, when := range []string{"before the first sample", "after it"} {
		for _, s := range b.Sources() {
			if s.Rules == nil {
				t.Errorf("%s: the rules of %s are null", when, s.Name)
			}
		}
		w.tick(t, b)
	}
}

func TestSampleSumsAllSources(t *testing.T) {
	w := newWorld()
	reg := prometheus.NewRegistry()
	bought := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_api_purchases_total"}, []string{"outcome"})
	seconds := prometheus.NewHistogram(
		prometheus.HistogramOpts{Name: "sluice_api_purchase_seconds", Buckets: []float64{.001, .01, .1}},
	)
	reg.MustRegister(bought, seconds)
	bought.WithLabelValues("accepted").Add(1000) // before the first sample
	var denied atomic.Int64
	edge := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		n := denied.Load()
		if n < 0 {
			out.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(out, `# TYPE sluice_edge_requests_total counter
sluice_edge_requests_total{rule="ip",verdict="deny"} %d
sluice_edge_requests_total{rule="ip",verdict="allow"} 0
# TYPE sluice_edge_cached_refusals_total counter
sluice_edge_cached_refusals_total{state="sold_out"} 7
# TYPE sluice_edge_rule_info gauge
sluice_edge_rule_info{rule="ip",key="ip",rate="20r/s",burst="40",match="",mode="enforce",on_error="deny",scope="fleet"} 1
# TYPE sluice_api_purchases_total counter
sluice_api_purchases_total{outcome="accepted"} %d
# TYPE sluice_api_purchase_seconds histogram
sluice_api_purchase_seconds_bucket{le="0.001"} %d
sluice_api_purchase_seconds_bucket{le="+Inf"} %d
sluice_api_purchase_seconds_sum 1
sluice_api_purchase_seconds_count %d
`, n, n, n, n, n)
	}))
	defer edge.Close()
	b := w.stats(reg, edge.URL)
	if s := w.tick(t, b); len(s.Counts) != 0 || s.Latency != nil {
		t.Errorf("counts before the first sample are included: %+v", s)
	}
	denied.Store(5)
	bought.WithLabelValues("accepted").Add(3)
	for range 3 {
		seconds.Observe(.05)
	}
	w.shards[0], w.shards[1] = &queue.Stats{
		Ready:     2,
		OldestAge: time.Second,
	}, &queue.Stats{
		Ready:     3,
		Dead:      1,
		OldestAge: 4 * time.Second,
	}
	w.total, w.log = store.Totals{Sales: 2, Stock: 10, Sold: 4}, 9
	s := w.tick(t, b)
	if s.Counts["rule:ip:deny"] != 5 || s.Counts["purchase:accepted"] != 8 || s.Counts["rows"] != 4 ||
		s.Counts["repeated:sold_out"] != 0 ||
		len(s.Counts) != 3 {
		t.Errorf("counted %v", s.Counts)
	}
	if s.Latency == nil || s.Latency.P50 > 1 || s.Latency.P99 < 10 || s.Latency.P99 > 100 {
		t.Errorf("latency %+v", s.Latency)
	}
	if s.Queue.Ready != 5 || s.Queue.Dead != 1 || s.Queue.OldestAgeSeconds != 4 || s.Queue.PerSecond != 20 ||
		*s.Queue.DrainSeconds != 3 ||
		s.Totals.Log != 9 {
		t.Errorf("%+v %+v", s.Queue, s.Totals)
	}
	sources := b.Sources()
	if len(sources) != 2 || sources[0].Name != Self || sources[0].Edge || !sources[1].Edge || len(sources[1].Rules) != 1 ||
		sources[1].Rules[0] != (Rule{"ip", "ip", "20r/s", "40", "", "enforce", "deny", "fleet"}) {
		t.Errorf("%+v", sources)
	}
	denied.Store(-1)
	if s := w.tick(t, b); s.Counts["rule:ip:deny"] != 0 || b.Sources()[1].Error == "" {
		t.Errorf("an edge that does not answer: %v, %+v", s.Counts, b.Sources()[1])
	}
	denied.Store(2) // the edge restarted
	if s := w.tick(t, b); s.Counts["rule:ip:deny"] != 2 || b.Sources()[1].Error != "" {
		t.Errorf("a restarted edge: %v", s.Counts)
	}
}

// All backends may have the same URLs, including their own.
func TestOwnMetricsAreCountedOnce(t *testing.T) {
	w := newWorld()
	reg := prometheus.NewRegistry()
	bought := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_api_purchases_total"}, []string{"outcome"})
	reg.MustRegister(bought)
	self := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	defer self.Close()
	b := w.stats(reg, self.URL)
	reg.MustRegister(b.Collector())
	bought.WithLabelValues("accepted").Inc()
	w.tick(t, b)
	bought.WithLabelValues("accepted").Inc()
	if s := w.tick(t, b); s.Counts["purchase:accepted"] != 1 || !strings.Contains(b.Sources()[1].Name, Self) {
		t.Errorf("one purchase: %v, %+v", s.Counts, b.Sources())
	}
}

// A collector that fails affects its own metrics alone.
func TestOwnMetricsDespiteAFailingCollector(t *testing.T) {
	w := newWorld()
	reg := prometheus.NewRegistry()
	bought := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_api_purchases_total"}, []string{"outcome"})
	reg.MustRegister(bought, failingCollector{})
	bought.WithLabelValues("accepted").Inc()
	b := w.stats(reg)
	w.tick(t, b)
	bought.WithLabelValues("accepted").Inc()
	if s := w.tick(t, b); s.Counts["purchase:accepted"] != 1 || b.Sources()[0].Error != "" {
		t.Errorf("one purchase: %v, %+v", s.Counts, b.Sources())
	}
}

// failingCollector fails in every scrape.
type failingCollector struct{}

func (failingCollector) Describe(chan<- *prometheus.Desc) {}

func (failingCollector) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "", nil, nil), errors.New("not valid UTF-8"))
}

func TestSampleWhileStoresAreDown(t *testing.T) {
	w := newWorld()
	w.broken = errors.New("down")
	b := w.stats(nil)
	if s := w.tick(t, b); s.Queue != nil || s.Totals != nil {
		t.Errorf("%+v", s)
	}
	w.broken, w.total.Sold = nil, 100
	if s := w.tick(t, b); s.Counts["rows"] != 0 || s.Totals.Sold != 100 {
		t.Errorf("existing rows are counted as new: %+v", s)
	}
}

// JSON has no infinity, so one such value would hide all samples.
func TestSampleWithoutFiniteNumbersIsJSON(t *testing.T) {
	w := newWorld()
	var scrapes atomic.Int64
	strange := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		n := scrapes.Add(1)
		value := "1"
		if n > 1 {
			value = "+Inf"
		}
		_, _ = fmt.Fprintf(out, `# TYPE sluice_edge_malformed_total counter
sluice_edge_malformed_total %s
# TYPE sluice_edge_unauthorized_total counter
sluice_edge_unauthorized_total %d
# TYPE sluice_api_purchase_seconds histogram
sluice_api_purchase_seconds_bucket{le="NaN"} %d
sluice_api_purchase_seconds_bucket{le="+Inf"} %d
sluice_api_purchase_seconds_count %d
`, value, n, n, n, n)
	}))
	defer strange.Close()
	b := w.stats(nil, strange.URL)
	w.tick(t, b)
	s := w.tick(t, b)
	if text, err := json.Marshal(s); err != nil || s.Counts["edge:unauthorized"] != 1 {
		t.Errorf("%s, %v, %+v", text, err, s)
	}
}

func TestHangingSourceAffectsOnlyItself(t *testing.T) {
	w := newWorld()
	hold := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hold }))
	defer slow.Close()
	defer close(hold)
	b := w.stats(nil, slow.URL)
	if s := w.tick(t, b); s.Queue == nil || s.Totals == nil {
		t.Errorf("%+v", s)
	}
	if e := b.Sources()[0].Error; !strings.Contains(e, "deadline") {
		t.Errorf("error %q, want a deadline", e)
	}
}

func TestSamplesAreKeptForFifteenMinutes(t *testing.T) {
	w := newWorld()
	b := w.stats(nil)
	for range maxSamples + 50 {
		w.tick(t, b)
	}
	all, more := b.Since(0)
	if len(all) != maxSamples || all[maxSamples-1].At != w.now.UnixMilli() ||
		all[0].At != w.now.Add(-(maxSamples-1)*time.Second).UnixMilli() {
		t.Fatalf("%d samples, the first at %d", len(all), all[0].At)
	}
	if some, _ := b.Since(w.now.UnixMilli() - 1500); len(some) != 2 {
		t.Errorf("%d samples since, want 2", len(some))
	}
	select {
	case <-more:
		t.Error("notified without a new sample")
	default:
	}
	w.tick(t, b)
	<-more
}

func TestLatencyFromBuckets(t *testing.T) {
	for name, c := range map[string]struct {
		f    counters
		want *Latency
	}{
		"nothing":     {counters{}, nil},
		"no requests": {counters{"seconds:0.1": 0, "seconds:+Inf": 0}, nil},
		"one bucket":  {counters{"seconds:0.1": 100, "seconds:1": 100, "seconds:+Inf": 100}, &Latency{50, 95, 99}},
		"two buckets": {counters{"seconds:0.1": 50, "seconds:1": 100, "seconds:+Inf": 100}, &Latency{100, 910, 982}},
		"above all":   {counters{"seconds:0.1": 0, "seconds:+Inf": 10}, &Latency{100, 100, 100}},
	} {
		got := c.f.latency()
		if (got == nil) != (c.want == nil) {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		if got != nil &&
			(math.Abs(got.P50-c.want.P50) > .01 || math.Abs(got.P95-c.want.P95) > .01 || math.Abs(got.P99-c.want.P99) > .01) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
