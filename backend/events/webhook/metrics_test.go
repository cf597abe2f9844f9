package webhook

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/store/storetest"
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
