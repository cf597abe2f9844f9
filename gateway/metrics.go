package gateway

import (
	"errors"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/gateway/known"
	"sluice/gateway/policy"
)

// metrics are what the edge counts. Labels come from the policy and the configuration, never from requests.
type metrics struct {
	requests     *prometheus.CounterVec // by rule and verdict: allow, deny, shadow (would have denied), error (no room for a bucket)
	answers      *prometheus.CounterVec // by class of status: 2xx, 3xx, 4xx, 5xx
	unauthorized prometheus.Counter
	malformed    prometheus.Counter
	turnedAway   prometheus.Counter
	connections  prometheus.Gauge
	buckets      prometheus.Gauge
	streams      prometheus.Gauge
	reloads      *prometheus.CounterVec // by result: ok, error
	keyReloads   *prometheus.CounterVec // likewise, of token keys
	upstream     *prometheus.CounterVec // by upstream and failure: dial, broken, timeout, garbled
	seconds      *prometheus.HistogramVec
	room         prometheus.Gauge
	repeated     *prometheus.CounterVec // by state of the sale: sold_out, scheduled, paused, closed
	lists        *prometheus.CounterVec // by result: ok, error
	holders      prometheus.Gauge
	signals      prometheus.Counter
	listening    prometheus.Gauge
	rules        *prometheus.GaugeVec // 1 for each rule of the policy in force; its labels say what it is
	byClass      [6]prometheus.Counter
	crowded      prometheus.Counter // of requests: refused because too many of their client were under way
	byState      map[known.State]prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_edge_" + name, Help: help})
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_edge_" + name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_edge_" + name, Help: help})
	}
	m := &metrics{
		requests:     vector("requests_total", "Requests by the rule that judged them and its verdict.", "rule", "verdict"),
		answers:      vector("answers_total", "Answers by class of status.", "status"),
		unauthorized: counter("unauthorized_total", "Requests refused because their token was missing or no good."),
		malformed:    counter("malformed_total", "Requests refused because they could not be read, or not in one way only."),
		turnedAway:   counter("connections_refused_total", "Connections turned away because too many were open."),
		connections:  gauge("connections", "Open connections of clients."),
		buckets:      gauge("buckets", "Live buckets of all rules."),
		streams:      gauge("streams", "Event streams that are open."),
		reloads:      vector("policy_reloads_total", "Times that a changed policy was read.", "result"),
		keyReloads:   vector("token_key_reloads_total", "Times that a changed file of token keys was read.", "result"),
		repeated:     vector("repeated_refusals_total", "Purchases answered from memory, by the state of their sale.", "state"),
		lists:        vector("holder_lists_total", "Lists of a sale's holders that were fetched from a backend.", "result"),
		holders:      gauge("holders", "Holders of orders in memory, of all sales, 4 bytes each."),
		signals:      counter("signals_total", "Changes of sales that a backend has told of."),
		listening:    gauge("signals_up", "Whether a backend tells of changes of sales at once; if not, they show within a second."),
		byState:      map[known.State]prometheus.Counter{},
		upstream:     vector("upstream_failures_total", "Tries at a backend that failed.", "upstream", "failure"),
		room:         gauge("bucket_capacity", "Live buckets there is room for. With none left, new clients are refused."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sluice_edge_upstream_seconds", Help: "Time until a backend began to answer.",
			Buckets: prometheus.DefBuckets}, []string{"upstream"}),
	}
	m.rules = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_edge_rule_info", Help: "1 for each rule of the policy in force, which its labels describe."},
		[]string{"rule", "key", "rate", "burst", "match", "mode", "on_error"})
	m.crowded = m.requests.WithLabelValues("concurrency", "deny")
	for class := 1; class <= 5; class++ {
		m.byClass[class] = m.answers.WithLabelValues(string(rune('0'+class)) + "xx")
	}
	for _, state := range known.States {
		m.byState[state] = m.repeated.WithLabelValues(string(state))
	}
	for _, result := range []string{"ok", "error"} { // shown as 0 from the start, so that a rate can be taken
		for _, v := range []*prometheus.CounterVec{m.reloads, m.keyReloads, m.lists} {
			v.WithLabelValues(result)
		}
	}
	if registry == nil {
		return m, nil
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.requests, m.answers, m.unauthorized, m.malformed, m.turnedAway, m.connections, m.buckets, m.streams, m.reloads, m.keyReloads, m.upstream,
		m.repeated, m.lists, m.holders, m.signals, m.listening, m.seconds, m.room, m.rules} {
		errs = append(errs, registry.Register(c))
	}
	return m, errors.Join(errs...)
}

func (m *metrics) answered(status int) {
	if class := status / 100; class >= 1 && class <= 5 {
		m.byClass[class].Inc()
	}
}

// inForce tells of the rules of a policy that has come into force.
func (m *metrics) inForce(rules []policy.Rule) {
	m.rules.Reset()
	for _, r := range rules {
		count, period := r.Rate.Fraction()
		rate := strconv.FormatFloat(float64(count)/float64(period)*1e6, 'g', 6, 64) + "r/s"
		onError := r.OnError
		if r.Mode == policy.Shadow { // it never refuses
			onError = policy.Allow
		}
		match := strings.TrimSpace(r.Match.Method + " " + r.Match.Path)
		m.rules.WithLabelValues(r.Name, string(r.Key), rate, strconv.Itoa(r.Burst), match, string(r.Mode), string(onError)).Set(1)
	}
}

func (m *metrics) fetched(ok bool) {
	result := "ok"
	if !ok {
		result = "error"
	}
	m.lists.WithLabelValues(result).Inc()
}
