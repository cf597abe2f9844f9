package webhook

import (
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/store/storetest"
	"sluice/test/testenv"
)

// gauges returns the gauges of the endpoints by name, with the value of the label after a space.
func (e *env) gauges(t *testing.T) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(NewAdmin(e.Store, nil)))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "sluice_webhook_")
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetGauge().GetValue()
		}
	}
	return values
}

// Counting a million waiting deliveries takes longer than a scrape. The alert of a failing endpoint, which causes them,
// needs its gauge.
func TestFailingEndpointIsExportedWhileItsDeliveriesCannotBeCounted(t *testing.T) {
	onEngines(t, func(t *testing.T, e *env) {
		e.endpoint(t, "sound", false)
		e.endpoint(t, "fails", false)
		e.add(t, "fails", "1:1", "2:2", "3:3")
		leased := e.lease(t, "fails", 1, 0, 1)
		e.results(t, givenUp(leased[0]))
		want := map[string]float64{
			"up": 1, "failing sound": 0, "waiting sound": 0, "failed sound": 0, "failing fails": 1, "waiting fails": 2,
			"failed fails": 1,
		}
		got := e.gauges(t)
		for name, value := range want {
			if v, exported := got[name]; !exported || v != value {
				t.Errorf("%s is %v, %t; want %v", name, v, exported, value)
			}
		}
		storetest.Exec(t, e.url, "ALTER TABLE webhook_deliveries RENAME TO slow")
		got = e.gauges(t)
		_, counted := got["waiting fails"]
		if up, exported := got["up"]; counted || !exported || up != 0 {
			t.Errorf("without the deliveries: %v, want up 0", got)
		}
		for _, name := range []string{"failing sound", "failing fails"} {
			if v, exported := got[name]; !exported || v != want[name] {
				t.Errorf("without the deliveries, %s is %v, %t; want %v", name, v, exported, want[name])
			}
		}
	})
}

// Another sender leases a delivery while this one sends it. The attempt is counted once, as lost, and its outcome is no
// reason for a warning.
func TestLostAttemptIsCountedOnce(t *testing.T) {
	registry, lines := prometheus.NewRegistry(), &testenv.Buffer{}
	cfg := SenderConfig{Metrics: NewCounters(registry), Log: slog.New(slog.NewTextHandler(lines, nil))}
	s := NewSender(nil, nil, everything, cfg)
	lost := givenUp(Delivery{ID: "a", Number: 1, Sequence: 7})
	lost.Gone = true
	interrupted := failed(Delivery{ID: "b", Number: 2, Sequence: 8, Interrupted: true}, time.Hour)
	s.count("ep", []Result{lost, interrupted, delivered(Delivery{ID: "c", Number: 3, Sequence: 9})}, []int64{3})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "sluice_webhook_attempts_total" {
			for _, m := range f.GetMetric() {
				counts[m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if want := (map[string]float64{"lost": 1, "delivered": 1}); !maps.Equal(counts, want) || lines.String() != "" {
		t.Errorf("attempts %v, want %v; logged %s", counts, want, lines)
	}
}
