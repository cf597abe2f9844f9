package containers

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"sluice/test/testenv"
)

// silent are expressions of the dashboard that return nothing in this stack, with the reason.
var silent = map[string]string{
	"sum(rate(sluice_edge_connections_refused_total[15s]))":        "nginx does not count them, the Go gateway does",
	"sum by (outcome) (rate(sluice_webhook_attempts_total[30s]))":  "there is no endpoint",
	"sum(max by (endpoint) (sluice_webhook_waiting))":              "there is no endpoint",
	"sum by (outcome) (rate(sluice_web_push_messages_total[30s]))": "the group web-push does not run",
	"max(sluice_web_push_waiting)":                                 "the group web-push does not run",
}

// checkMonitoring checks the targets and alerts of Prometheus, and sends it the queries of the dashboard. Rates cover
// the last seconds, in which buy causes events.
func (s *stack) checkMonitoring(buy func()) {
	s.Helper()
	p := prometheus{s.T, "http://" + s.address("prometheus", "front") + ":9090/api/v1/"}

	want := map[string]int{"sluice-backend": 2, "sluice-worker": 3, "sluice-group": 1, "sluice-edge": 1}
	testenv.Eventually(s, time.Minute, "all targets are up", func() bool {
		var found struct {
			ActiveTargets []struct {
				Labels map[string]string
				Health string
			}
		}
		p.query("targets", nil, &found)
		up := map[string]int{}
		for _, target := range found.ActiveTargets {
			if target.Health == "up" {
				up[target.Labels["job"]]++
			}
		}
		return maps.Equal(up, want)
	})

	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	p.query("rules", nil, &rules)
	var loaded []string
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			loaded = append(loaded, r.Name)
			if r.Health == "err" {
				s.Errorf("the alert %s: %s", r.Name, r.LastError)
			}
		}
	}
	for _, m := range regexp.MustCompile(`- alert: (\S+)`).FindAllStringSubmatch(
		read(s.T, filepath.Join(s.dir, "observe/prometheus/alerts.yml")), -1,
	) {
		if !slices.Contains(loaded, m[1]) {
			s.Errorf("Prometheus has not loaded the alert %s", m[1])
		}
	}

	buy()
	hasData := func(expr string) bool {
		var answer struct{ Result []json.RawMessage }
		p.query("query", url.Values{"query": {expr}}, &answer)
		return len(answer.Result) > 0
	}
	for _, q := range s.dashboard() {
		if reason, isSilent := silent[q.expr]; !isSilent {
			// rates need two scrapes
			testenv.Eventually(s, time.Minute, q.panel+": "+q.expr+" returns data", func() bool { return hasData(q.expr) })
		} else if hasData(q.expr) {
			s.Errorf("%s: %s returns data, although %s", q.panel, q.expr, reason)
		}
	}
}

// query is an expression of the dashboard.
type query struct{ panel, expr string }

func (s *stack) dashboard() []query {
	s.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(s.T, filepath.Join(s.dir, "observe/grafana/dashboards/sluice.json"))),
		&board); err != nil {
		s.Fatal(err)
	}
	var all []query
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			all = append(all, query{panel.Title, target.Expr})
		}
	}
	return all
}

type prometheus struct {
	*testing.T
	api string
}

// query decodes the response of Prometheus into data.
func (p prometheus) query(path string, values url.Values, data any) {
	p.Helper()
	request, err := http.NewRequestWithContext(p.Context(), http.MethodGet, p.api+path+"?"+values.Encode(), nil)
	if err != nil {
		p.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		p.Fatal(err)
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Status != "success" {
		p.Fatalf("prometheus: %s %s: %v %s", path, values.Encode(), err, answer.Error)
	}
}
