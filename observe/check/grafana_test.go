package check

import (
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

const dashboardFile = "../grafana/dashboards/sluice.json"

// validate checks a dashboard against Grafana's published types: unknown, missing and invalid fields of the dashboard,
// of its panels and of its queries. The types accept any option of a panel kind that is not registered here, so other
// kinds are an error.
func validate(text []byte) error {
	runtime := cog.NewRuntime()
	known := map[string]bool{"row": true}
	kinds := []variants.PanelcfgConfig{stat.VariantConfig(), bargauge.VariantConfig(), timeseries.VariantConfig()}
	for _, kind := range kinds {
		runtime.RegisterPanelcfgVariant(kind)
		known[kind.Identifier] = true
	}
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())

	text, err := withoutTitleFormat(text)
	if err != nil {
		return err
	}
	var d dashboard.Dashboard
	if err := d.UnmarshalJSONStrict(text); err != nil {
		return err
	}
	for _, panel := range d.Panels {
		if panel.Panel != nil && !known[panel.Panel.Type] {
			return errors.New("panel kind " + panel.Panel.Type + " is not registered")
		}
	}
	return d.Validate()
}

// withoutTitleFormat removes the annotation field titleFormat, which Grafana's Prometheus data source reads but the
// published types lack.
func withoutTitleFormat(text []byte) ([]byte, error) {
	var d map[string]any
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, err
	}
	if annotations, ok := d["annotations"].(map[string]any); ok {
		list, _ := annotations["list"].([]any)
		for _, a := range list {
			if a, ok := a.(map[string]any); ok {
				delete(a, "titleFormat")
			}
		}
	}
	return json.Marshal(d)
}

func TestDashboardMatchesGrafanaTypes(t *testing.T) {
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(text); err != nil {
		t.Error(err)
	}
}

// Grafana ignores unknown fields silently. The validation must find one in each part of a dashboard.
func TestInvalidDashboardIsRejected(t *testing.T) {
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	panel := func(d map[string]any, kind string) map[string]any {
		for _, p := range d["panels"].([]any) {
			if p := p.(map[string]any); p["type"] == kind {
				return p
			}
		}
		t.Fatalf("no panel of kind %s", kind)
		return nil
	}
	options := func(d map[string]any, kind string) map[string]any {
		return panel(d, kind)["options"].(map[string]any)
	}
	for name, corrupt := range map[string]func(map[string]any){
		"unknown dashboard field":      func(d map[string]any) { d["refreshes"] = "5s" },
		"invalid value":                func(d map[string]any) { d["editable"] = "no" },
		"unknown option of stat":       func(d map[string]any) { options(d, "stat")["colorMod"] = "value" },
		"unknown option of bargauge":   func(d map[string]any) { options(d, "bargauge")["display"] = "basic" },
		"unknown option of timeseries": func(d map[string]any) { options(d, "timeseries")["legends"] = "right" },
		"missing option":               func(d map[string]any) { delete(options(d, "stat"), "orientation") },
		"unknown query field": func(d map[string]any) {
			panel(d, "timeseries")["targets"].([]any)[0].(map[string]any)["legend"] = "a"
		},
		"unknown panel kind": func(d map[string]any) { panel(d, "stat")["type"] = "statistics" },
	} {
		var d map[string]any
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		corrupt(d)
		corrupted, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if validate(corrupted) == nil {
			t.Errorf("%s: want an error", name)
		}
	}
}
