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

const boardFile = "../grafana/dashboards/sluice.json"

// asPublished says what of a dashboard Grafana's own published types do not know, miss or do not allow: of the dashboard, of its kinds of panels and of its queries.
// Of a kind of panel that is not named here they would let any option pass, so there must be no other.
func asPublished(text []byte) error {
	runtime := cog.NewRuntime()
	known := map[string]bool{"row": true}
	for _, kind := range []variants.PanelcfgConfig{stat.VariantConfig(), bargauge.VariantConfig(), timeseries.VariantConfig()} {
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
			return errors.New("a panel of the kind " + panel.Panel.Type)
		}
	}
	return d.Validate()
}

// withoutTitleFormat takes out what Grafana's source of Prometheus data reads of an annotation, by this name, and the types of annotations do not have.
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

func TestDashboardIsAsGrafanaPublishesIt(t *testing.T) {
	text, err := os.ReadFile(boardFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := asPublished(text); err != nil {
		t.Error(err)
	}
}

// What the types are to notice: a name or a value that Grafana would pass over in silence, in each part of a dashboard.
func TestMistakesInTheDashboardAreNoticed(t *testing.T) {
	text, err := os.ReadFile(boardFile)
	if err != nil {
		t.Fatal(err)
	}
	panel := func(d map[string]any, kind string) map[string]any {
		for _, p := range d["panels"].([]any) {
			if p := p.(map[string]any); p["type"] == kind {
				return p
			}
		}
		t.Fatalf("no panel of the kind %s", kind)
		return nil
	}
	for what, spoil := range map[string]func(map[string]any){
		"a setting of the dashboard": func(d map[string]any) { d["refreshes"] = "5s" },
		"a value":                    func(d map[string]any) { d["editable"] = "no" },
		"an option of stat":          func(d map[string]any) { panel(d, "stat")["options"].(map[string]any)["colorMod"] = "value" },
		"an option of bargauge":      func(d map[string]any) { panel(d, "bargauge")["options"].(map[string]any)["display"] = "basic" },
		"an option of timeseries":    func(d map[string]any) { panel(d, "timeseries")["options"].(map[string]any)["legends"] = "right" },
		"an option that is missing":  func(d map[string]any) { delete(panel(d, "stat")["options"].(map[string]any), "orientation") },
		"a word of a query": func(d map[string]any) {
			panel(d, "timeseries")["targets"].([]any)[0].(map[string]any)["legend"] = "a"
		},
		"a kind of panel": func(d map[string]any) { panel(d, "stat")["type"] = "statistics" },
	} {
		var d map[string]any
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		spoil(d)
		spoilt, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if asPublished(spoilt) == nil {
			t.Errorf("%s: nobody notices", what)
		}
	}
}
