package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSBOMListsModules(t *testing.T) {
	r := testRelease(t, "0.1.0", t.TempDir())
	r.Archs = []string{"amd64"}
	if err := r.Make(t.Context(), []string{"sbom"}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(r.Out, "sluice_0.1.0_amd64.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, c := range d.Components {
		names[c.Name] = c.Version
	}
	if d.Format != "CycloneDX" || names["github.com/goreleaser/nfpm/v2"] == "" || !strings.HasPrefix(names["std"], "1.") ||
		len(d.Dependencies) != 1 || len(d.Dependencies[0].DependsOn) != len(d.Components) {
		t.Errorf("%s", text)
	}
}
