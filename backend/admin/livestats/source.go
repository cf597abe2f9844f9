package livestats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Self is the name of this process as a source.
const Self = "this process"

// infoMetric identifies the process in its metrics.
const infoMetric = "sluice_livestats_info"

// Source is the state of a source of metrics.
type Source struct {
	Name   string     `json:"name"` // a URL, or Self
	Error  string     `json:"error,omitempty"`
	SeenAt *time.Time `json:"seen_at"` // time of the last response; null: never
	Edge   bool       `json:"edge"`    // it has metrics of an edge
	Rules  []Rule     `json:"rules"`   // of its active policy; not nil
}

// Rule is one rule of an edge's active policy.
type Rule struct {
	Name    string `json:"name"`
	Key     string `json:"key"`
	Rate    string `json:"rate"`
	Burst   string `json:"burst"`
	Match   string `json:"match"` // method and path; empty: all requests
	Mode    string `json:"mode"`
	OnError string `json:"on_error"`
	Scope   string `json:"scope"` // edge or fleet
}

// source remembers the last response. It is safe for concurrent use.
type source struct {
	name    string
	read    func(ctx context.Context) (map[string]*dto.MetricFamily, error)
	exclude string // id of this process, whose metrics are read as Self

	mu     sync.Mutex
	last   counters // nil: no response yet
	public Source
}

func newSource(name string, read func(context.Context) (map[string]*dto.MetricFamily, error)) *source {
	return &source{name: name, read: read, public: Source{Name: name, Rules: []Rule{}}}
}

func (s *source) current() Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.public
}

// delta reads the source and returns the increments since the last response. It returns none for the first response.
func (s *source) delta(ctx context.Context, log *slog.Logger) counters {
	families, err := s.read(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			if s.public.Error == "" {
				log.Warn("cannot read metrics for the console, retrying", "url", s.name, "err", err)
			}
			s.public.Error = err.Error()
		}
		return nil
	}
	if s.public.Error != "" {
		log.Info("metrics for the console can be read again", "url", s.name)
	}
	now := time.Now().UTC()
	s.public = Source{Name: s.name, SeenAt: &now, Rules: rulesOf(families)}
	for name := range families {
		s.public.Edge = s.public.Edge || strings.HasPrefix(name, "sluice_edge_")
	}
	if info := families[infoMetric].GetMetric(); s.exclude != "" && len(info) > 0 && labelOf(info[0], "id") == s.exclude {
		s.public.Name = s.name + " (" + Self + ")"
		return nil
	}
	before := s.last
	s.last = countersOf(families)
	if before == nil {
		return nil
	}
	return s.last.since(before)
}

// counted lists the counters in Sample.Counts: metric, key, and the labels appended to the key.
var counted = []struct {
	metric, key string
	labels      []string
}{
	{"sluice_edge_requests_total", "rule", []string{"rule", "verdict"}},
	{"sluice_edge_unauthorized_total", "edge:unauthorized", nil},
	{"sluice_edge_malformed_total", "edge:malformed", nil},
	{"sluice_edge_cached_refusals_total", "repeated", []string{"state"}},
	{"sluice_api_purchases_total", "purchase", []string{"outcome"}},
}

func countersOf(families map[string]*dto.MetricFamily) counters {
	f := counters{}
	for _, c := range counted {
		for _, m := range families[c.metric].GetMetric() {
			key := c.key
			for _, label := range c.labels {
				key += ":" + labelOf(m, label)
			}
			f[key] += m.GetCounter().GetValue() + m.GetUntyped().GetValue()
		}
	}
	for _, m := range families["sluice_api_purchase_seconds"].GetMetric() { // by outcome
		h := m.GetHistogram()
		for _, b := range h.GetBucket() {
			if b.GetUpperBound() < math.Inf(1) { // the bucket +Inf, which only scraped metrics have, is added below
				f[secondsKey+strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)] += float64(b.GetCumulativeCount())
			}
		}
		f[secondsKey+"+Inf"] += float64(h.GetSampleCount())
	}
	return f
}

func rulesOf(families map[string]*dto.MetricFamily) []Rule {
	rules := []Rule{}
	for _, m := range families["sluice_edge_rule_info"].GetMetric() {
		rules = append(rules, Rule{
			Name: labelOf(m, "rule"), Key: labelOf(m, "key"), Rate: labelOf(m, "rate"), Burst: labelOf(m, "burst"),
			Match: labelOf(m, "match"), Mode: labelOf(m, "mode"), OnError: labelOf(m, "on_error"),
			Scope: labelOf(m, "scope"),
		})
	}
	slices.SortFunc(rules, func(a, b Rule) int { return strings.Compare(a.Name, b.Name) })
	return rules
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func ownMetrics(from prometheus.Gatherer) func(context.Context) (map[string]*dto.MetricFamily, error) {
	return func(context.Context) (map[string]*dto.MetricFamily, error) {
		all, err := from.Gather()
		if len(all) > 0 { // a collector that fails affects its own metrics alone, as in GET /metrics
			err = nil
		}
		families := make(map[string]*dto.MetricFamily, len(all))
		for _, f := range all {
			families[f.GetName()] = f
		}
		return families, err
	}
}

// maxScrape bounds one response, in bytes.
const maxScrape = 4 << 20

func scraper() *http.Client {
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func scrape(client *http.Client, url string) func(context.Context) (map[string]*dto.MetricFamily, error) {
	return func(ctx context.Context) (map[string]*dto.MetricFamily, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("GET %s: status %s", url, resp.Status)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		return parser.TextToMetricFamilies(io.LimitReader(resp.Body, maxScrape))
	}
}
