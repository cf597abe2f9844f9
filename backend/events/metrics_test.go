package events_test

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/backend/events"
)

// A program may create a group with any name in Redis. A label must be valid UTF-8.
func TestGroupWithInvalidNameHidesNoGauge(t *testing.T) {
	on(t, func(w *world) {
		for _, name := range []string{"good", "\xff", "\xfe"} {
			if err := w.raw.XGroupCreateMkStream(w.Context(), space.Events(), name, "0").Err(); err != nil {
				w.Fatal(err)
			}
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(events.NewCollector(w.admin()))
		families, err := registry.Gather()
		if err != nil {
			w.Fatal(err)
		}
		var groups []string
		up := 0.0
		for _, f := range families {
			for _, m := range f.GetMetric() {
				switch f.GetName() {
				case "sluice_event_up":
					up = m.GetGauge().GetValue()
				case "sluice_event_lag":
					groups = append(groups, m.GetLabel()[0].GetValue())
				}
			}
		}
		slices.Sort(groups)
		if want := []string{`"\xfe"`, `"\xff"`, "good"}; up != 1 || !slices.Equal(groups, want) {
			t.Errorf("up is %v, groups %q, want 1 and %q", up, groups, want)
		}
	})
}
