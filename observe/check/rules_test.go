package check

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
)

func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile("../prometheus/alerts.yml", false, model.UTF8Validation)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	all := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if _, twice := all[r.Alert]; twice {
				t.Errorf("alert %s is defined twice", r.Alert)
			}
			all[r.Alert] = r
		}
	}
	return all
}

// at is the time at which the alerts are evaluated. The series below have a sample every ten seconds for twenty
// minutes.
const at = 15 * time.Minute

// cases has, for each alert, series for which it must fire and the most similar series for which it must not. "---"
// separates independent cases.
var cases = map[string]struct{ fires, silent string }{
	"SluiceSaleDoesNotBalance": {
		`sluice_audits_total{result="unbalanced"} 0x60 1x60`,
		`sluice_audits_total{result="unbalanced"} 3x120
		 sluice_audits_total{result="balanced"} 0+1x120`,
	},
	"SluiceRedisIsNotVerified": {
		`sluice_redis_verified{instance="a"} 1x120
		 sluice_redis_verified{instance="b"} 0x120`,
		`sluice_redis_verified{instance="a"} 1x120
		 sluice_redis_verified{instance="b"} 1x120`,
	},
	"SluiceDeadLetters": {
		`sluice_queue_messages{shard="0",state="dead"} 1x120`,
		`sluice_queue_messages{shard="0",state="dead"} 0x120
		 sluice_queue_messages{shard="0",state="ready"} 9x120`,
	},
	"SluiceJournalFails": {
		`sluice_journal_up{instance="a",shard="0"} 1x120
		 sluice_journal_up{instance="a",shard="1"} 0x120`,
		`sluice_journal_up{instance="a",shard="0"} 1x120
		 sluice_journal_up{instance="b",shard="0"} 0x85 1x35`,
	},
	"SluiceAuditIsOld": {
		`sluice_audit_last_timestamp_seconds{instance="a"} 500x120
		 sluice_audit_last_timestamp_seconds{instance="b"} 0x120
		 sluice_sales{state="open"} 1x120
		 ---
		 sluice_audit_last_timestamp_seconds{instance="a"} 0x120
		 process_start_time_seconds{job="sluice-backend"} 500x120
		 sluice_sales{state="scheduled"} 1x120`,
		`sluice_audit_last_timestamp_seconds{instance="a"} 500x120
		 sluice_audit_last_timestamp_seconds{instance="b"} 800x120
		 sluice_sales{state="open"} 1x120
		 ---
		 sluice_audit_last_timestamp_seconds{instance="a"} 500x120
		 sluice_sales{state="open"} 0x120
		 sluice_sales{state="closed"} 9x120
		 ---
		 sluice_audit_last_timestamp_seconds{instance="a"} 0x120
		 process_start_time_seconds{job="sluice-backend"} 800x120
		 sluice_sales{state="open"} 1x120`,
	},
	"SluiceUnitsDoNotReturn": {`sluice_orders_units_returning 2x120`, `sluice_orders_units_returning 0x120`},
	"SluicePurchasesFail": {
		`sluice_api_purchases_total{outcome="accepted"} 0+980x120
		 sluice_api_purchases_total{outcome="queue_full"} 0+20x120`,
		`sluice_api_purchases_total{outcome="accepted"} 0+995x120
		 sluice_api_purchases_total{outcome="unavailable"} 0+5x120
		 sluice_api_purchases_total{outcome="sold_out"} 0+5000x120`,
	},
	"SluicePurchasesAreSlow": {
		`sluice_api_purchase_seconds_bucket{outcome="accepted",le="0.5"} 0+90x120
		 sluice_api_purchase_seconds_bucket{outcome="accepted",le="1"} 0+100x120
		 sluice_api_purchase_seconds_bucket{outcome="accepted",le="+Inf"} 0+100x120`,
		`sluice_api_purchase_seconds_bucket{outcome="accepted",le="0.5"} 0+100x120
		 sluice_api_purchase_seconds_bucket{outcome="accepted",le="+Inf"} 0+100x120
		 sluice_api_purchase_seconds_bucket{outcome="unavailable",le="0.5"} 0x120
		 sluice_api_purchase_seconds_bucket{outcome="unavailable",le="+Inf"} 0+100x120`,
	},
	"SluiceEdgeCannotReachBackends": {
		// A process of an edge tries a backend that it considers down every two seconds.
		`sluice_edge_upstream_failures_total{upstream="a:1",failure="dial",instance="e"} 0+5x120`,
		// The same during a restart of twenty seconds, and that of nginx with sixteen processes.
		`sluice_edge_upstream_failures_total{upstream="a:1",failure="dial",instance="e"} 0x86 5 10x33
		 sluice_edge_upstream_failures_total{upstream="a:1",failure="dial",instance="f"} 0x86 80 160x33
		 ---
		 sluice_edge_upstream_failures_total{upstream="a:1",failure="dial",instance="f"} 0x84 80 160x35`,
	},
	"SluiceEdgeCannotCount": {
		`sluice_edge_requests_total{rule="ip",verdict="error"} 0+1x120`,
		`sluice_edge_requests_total{rule="ip",verdict="deny"} 0+1000x120`,
	},
	"SluiceEdgeIsNearlyFull": {
		`sluice_edge_buckets 95x120
		 sluice_edge_bucket_capacity 100x120`,
		`sluice_edge_buckets 50x120
		 sluice_edge_bucket_capacity 100x120`,
	},
	"SluiceEdgeConfigurationIsBad": {
		`sluice_edge_policy_reloads_total{result="error"} 0x80 1x40
		 ---
		 sluice_edge_token_key_reloads_total{result="error"} 0x80 1x40`,
		`sluice_edge_policy_reloads_total{result="ok"} 0x80 1x40
		 sluice_edge_policy_reloads_total{result="error"} 1x120`,
	},
	"SluiceOrdersWait": {
		`sluice_queue_oldest_age_seconds{shard="0"} 31x120`,
		`sluice_queue_oldest_age_seconds{shard="0"} 5x120`,
	},
	"SluiceQueueDoesNotDrain": {
		`sluice_queue_drain_seconds{shard="0"}` + strings.Repeat(" Inf", 120),
		`sluice_queue_drain_seconds{shard="0"}` + strings.Repeat(" NaN", 120),
	},
	"SluiceQueueIsNearlyFull": {
		`sluice_queue_messages{shard="0",state="ready",instance="a"} 90x120
		 sluice_queue_max_ready{instance="a"} 100x120
		 sluice_queue_max_ready{instance="b"} 100x120`,
		`sluice_queue_messages{shard="0",state="ready",instance="a"} 10x120
		 sluice_queue_messages{shard="0",state="dead",instance="a"} 99x120
		 sluice_queue_max_ready{instance="a"} 100x120`,
	},
	"SluiceWorkersPause": {
		`sluice_worker_paused_loops{kind="unavailable"} 2x120`,
		`sluice_worker_paused_loops{kind="unavailable"} 0x120`,
	},
	"SluiceLeasesExpire": {`sluice_queue_reclaimed_total 0x80 500x40`, `sluice_queue_reclaimed_total 500x120`},
	"SluiceEventsWait":   {`sluice_event_unrelayed_seconds 61x120`, `sluice_event_unrelayed_seconds 1x120`},
	"SluiceGroupIsBehind": {
		`sluice_event_oldest_seconds{group="points"} 61x120`,
		`sluice_event_oldest_seconds{group="points"} 0x120`,
	},
	"SluiceGroupHasDeadLetters": {
		`sluice_event_dead{group="points"} 1x120`,
		`sluice_event_dead{group="points"} 0x120`,
	},
	"SluiceWebhooksFail": {
		`sluice_webhook_failing{endpoint="e"} 1x120`,
		`sluice_webhook_failing{endpoint="e"} 0x120`,
	},
	"SluiceNotificationsWait": {
		`sluice_web_push_waiting 20000x120`,
		`sluice_web_push_waiting 20x120`,
	},
	"SluiceSaleNotificationsAreOff": {
		`sluice_sale_notifications_up 1x120
		 sluice_edge_sale_notifications_up 0x120
		 ---
		 sluice_sale_notifications_up{instance="a"} 1x120
		 sluice_sale_notifications_up{instance="b"} 0x120
		 sluice_edge_sale_notifications_up 1x120`,
		`sluice_sale_notifications_up 1x120
		 sluice_edge_sale_notifications_up 1x120`,
	},
	"SluiceProcessIsGone": {`up{job="sluice-worker"} 0x120`, `up{job="sluice-worker"} 1x120
		up{job="other"} 0x120`},
}

func TestAlertsFireOnlyWhenTheyShould(t *testing.T) {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000, Timeout: time.Minute})
	t.Cleanup(func() { _ = engine.Close() })
	rules := alerts(t)
	for name, r := range rules {
		c, there := cases[name]
		if !there {
			t.Errorf("alert %s has no test case", name)
			continue
		}
		all := map[string]bool{}
		for series := range strings.SplitSeq(c.fires, "---") {
			all[series] = true
		}
		for series := range strings.SplitSeq(c.silent, "---") {
			all[series] = false
		}
		for series, fires := range all {
			query, err := engine.NewInstantQuery(t.Context(), hold(t, series), nil, r.Expr, time.Unix(0, 0).Add(at))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			result := query.Exec(t.Context())
			if result.Err != nil {
				t.Fatalf("%s: %v", name, result.Err)
			}
			vector, _ := result.Value.(promql.Vector)
			if got := len(vector) > 0; got != fires {
				t.Errorf("%s fires: %v, want %v, over\n%s", name, got, fires, series)
			}
			query.Close()
		}
	}
	for name := range cases {
		if _, there := rules[name]; !there {
			t.Errorf("alert %s does not exist", name)
		}
	}
}

func TestAlertsHaveSeveritySummaryAndRunbook(t *testing.T) {
	for name, r := range alerts(t) {
		if !slices.Contains([]string{"page", "ticket"}, r.Labels["severity"]) || r.Annotations["summary"] == "" {
			t.Errorf("alert %s has severity %q and summary %q", name, r.Labels["severity"], r.Annotations["summary"])
		}
		if strings.Contains(r.Expr, "increase(") && strings.Contains(r.Annotations["summary"], "{{ $value }}") {
			t.Errorf("alert %s shows a value of increase, which is extrapolated, without rounding", name)
		}
		runbook := r.Annotations["runbook_url"]
		page, section, _ := strings.Cut(runbook, "#")
		text, err := os.ReadFile("../../" + page)
		if page == "" || err != nil {
			t.Errorf("alert %s has runbook %q: %v", name, runbook, err)
		}
		if section != "" && !slices.Contains(sections(string(text)), section) {
			t.Errorf("alert %s has runbook %q, a section that does not exist", name, runbook)
		}
	}
}

// sections returns the anchors of the headings of a Markdown text.
func sections(text string) (anchors []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		anchor := strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-")
		anchors = append(anchors, regexp.MustCompile(`[^a-z0-9-]`).ReplaceAllString(anchor, ""))
	}
	return anchors
}

// Every query of the dashboard must be valid and use the provisioned data source.
func TestDashboardQueriesAreValid(t *testing.T) {
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		UID    string
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct {
				Expr       string
				Datasource struct{ UID string }
			}
		}
	}
	if err := json.Unmarshal(text, &board); err != nil || board.UID == "" {
		t.Fatalf("read dashboard: %v", err)
	}
	source, err := os.ReadFile("../grafana/provisioning/datasources/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	uid := regexp.MustCompile(`uid: (\S+)`).FindSubmatch(source)
	ids, queries := map[int]bool{}, 0
	for _, panel := range board.Panels {
		if ids[panel.ID] || panel.GridPos.X+panel.GridPos.W > 24 {
			t.Errorf("panel %s: the id is not unique, or the panel is too wide", panel.Title)
		}
		ids[panel.ID] = true
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("panel %s has no query", panel.Title)
		}
		for _, target := range panel.Targets {
			queries++
			if _, err := parser.ParseExpr(target.Expr); err != nil {
				t.Errorf("%s: %v", panel.Title, err)
			}
			if target.Datasource.UID != string(uid[1]) {
				t.Errorf("panel %s uses data source %q", panel.Title, target.Datasource.UID)
			}
		}
	}
	if queries < 30 {
		t.Errorf("found %d queries, want at least 30", queries)
	}
}
