package gateway

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/gateway/policy"
	"sluice/gateway/refusalcache"
	"sluice/internal/fleetlimit"
	"sluice/internal/metric"
)

// metrics are the edge's counters, except those of connections, which are in package proxy. Labels come from the
// policy and the configuration, never from requests.
type metrics struct {
	requests        *prometheus.CounterVec // by rule and verdict: allow, deny, shadow (would deny), error (no bucket)
	responses       *prometheus.CounterVec // by status class
	unauthorized    prometheus.Counter
	malformed       prometheus.Counter
	buckets         prometheus.Gauge
	capacity        prometheus.Gauge
	rules           *prometheus.GaugeVec   // 1 for each rule in force; the labels describe it
	policyReloads   *prometheus.CounterVec // by result: ok, error
	keyReloads      *prometheus.CounterVec // by result: ok, error
	refusals        *prometheus.CounterVec // answered from the cache, by state of the sale
	listFetches     *prometheus.CounterVec // by result: ok, error
	bypassEntries   prometheus.Gauge
	leases          *prometheus.CounterVec // by fleetlimit.Result
	notifications   prometheus.Counter
	notificationsUp prometheus.Gauge

	byClass           [6]prometheus.Counter // responses by first digit of the status
	byState           map[refusalcache.State]prometheus.Counter
	concurrencyDenied prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	register := metric.With(registry)
	m := &metrics{
		requests: register.NewCounterVec(prometheus.CounterOpts{Name: "sluice_edge_requests_total",
			Help: "Requests by rule and verdict."}, []string{"rule", "verdict"}),
		responses: register.Counters("sluice_edge_responses_total", "Responses by status class.", "status"),
		unauthorized: register.Counter("sluice_edge_unauthorized_total",
			"Requests refused because of a missing or invalid token."),
		malformed: register.Counter("sluice_edge_malformed_total",
			"Requests refused because they were malformed or ambiguous."),
		buckets: register.Gauge("sluice_edge_buckets", "Buckets in use, of all rules."),
		capacity: register.Gauge("sluice_edge_bucket_capacity",
			"Available buckets. If all are in use, new clients are refused."),
		policyReloads: register.Counters("sluice_edge_policy_reloads_total", "Reloads of a changed policy.",
			"result", "ok", "error"),
		keyReloads: register.Counters("sluice_edge_token_key_reloads_total", "Reloads of a changed token key file.",
			"result", "ok", "error"),
		refusals: register.Counters("sluice_edge_cached_refusals_total",
			"Purchases refused from the cache, by state of the sale.", "state"),
		listFetches: register.Counters("sluice_edge_bypass_list_fetches_total", "Bypass lists fetched from a backend.",
			"result", "ok", "error"),
		leases: register.Counters("sluice_edge_fleet_leases_total",
			`Leases of rules with scope = "fleet", each a round trip to Redis, by result.`, "result"),
		bypassEntries: register.Gauge("sluice_edge_bypass_list_entries", "Bypass list entries in memory, 4 bytes each."),
		notifications: register.Counter("sluice_edge_sale_notifications_total",
			"Sale notifications received from a backend."),
		notificationsUp: register.Gauge("sluice_edge_sale_notifications_up",
			"Whether sale notifications are received. If not, changes take up to a second."),
		rules: register.NewGaugeVec(prometheus.GaugeOpts{Name: "sluice_edge_rule_info",
			Help: "1 for each rule of the policy in force. The labels describe the rule."},
			[]string{"rule", "key", "rate", "burst", "match", "mode", "on_error", "scope"}),
		byState: map[refusalcache.State]prometheus.Counter{},
	}
	m.concurrencyDenied = m.requests.WithLabelValues(policy.ConcurrencyRule, "deny")
	for class := 1; class <= 5; class++ {
		m.byClass[class] = m.responses.WithLabelValues(string(rune('0'+class)) + "xx")
	}
	for _, state := range refusalcache.States {
		m.byState[state] = m.refusals.WithLabelValues(string(state))
	}
	for _, result := range fleetlimit.Results {
		m.leases.WithLabelValues(string(result))
	}
	return m
}

func (m *metrics) responded(status int) {
	if class := status / 100; class >= 1 && class <= 5 {
		m.byClass[class].Inc()
	}
}

func (m *metrics) setRules(rules []policy.Rule) {
	m.rules.Reset()
	for _, r := range rules {
		count, period := r.Rate.Fraction()
		rate := strconv.FormatFloat(float64(count)/float64(period)*1e6, 'g', 6, 64) + "r/s"
		onError := r.OnError
		if r.Mode == policy.Shadow { // a shadow rule never refuses
			onError = policy.Allow
		}
		m.rules.WithLabelValues(r.Name, string(r.Key), rate, strconv.Itoa(r.Burst), r.Match.String(), string(r.Mode),
			string(onError), r.Scope()).Set(1)
	}
}

func (m *metrics) listFetched(ok bool) { m.listFetches.WithLabelValues(resultLabel(ok)).Inc() }

func resultLabel(ok bool) string {
	if ok {
		return "ok"
	}
	return "error"
}
