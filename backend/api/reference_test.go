package api

import (
	"bytes"
	"compress/gzip"
	"io"
	"slices"
	"strings"
	"testing"

	"sluice/internal/openapi"
)

// Each listener shows the documentation of what it answers, and of nothing else, to machines and to people.
func TestEachListenerDocumentsItself(t *testing.T) {
	public, operator := newWorld().serve(t), newDeskWorld().serve(t)
	for name, s := range map[string]*site{"public": public, "operator": operator} {
		a := s.ask("GET", "/openapi.yaml", "")
		if a.status != 200 || a.header.Get("Content-Type") != "application/yaml; charset=utf-8" || a.header.Get("Cache-Control") != referenceAge {
			t.Fatalf("%s: %d %v", name, a.status, a.header)
		}
		d, err := openapi.Parse([]byte(a.body))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var want, got []string
		for _, r := range s.app.routes {
			if !strings.HasPrefix(r.path, "/.sluice/") {
				want = append(want, r.method+" "+documentedPath(r.path))
			}
		}
		page := s.ask("GET", "/reference", "", "Accept-Encoding: identity")
		for op := range d.Operations() {
			got = append(got, op.Method+" "+op.Path)
			if !strings.Contains(page.body, `<article id="`+op.Get("operationId").Text()+`"`) {
				t.Errorf("%s: the page lacks %s %s", name, op.Method, op.Path)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("%s documents\n%v\nwant\n%v", name, got, want)
		}
		if strings.Contains(a.body, "127.0.0.1") || !strings.Contains(a.body, "url: /") {
			t.Errorf("%s: the server is not where the document came from", name)
		}
		if policy := page.header.Get("Content-Security-Policy"); page.status != 200 || !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || page.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: the page: %d %v", name, page.status, page.header)
		}
		packed := s.ask("GET", "/reference", "", "Accept-Encoding: br, gzip")
		r, err := gzip.NewReader(bytes.NewReader([]byte(packed.body)))
		if err != nil {
			t.Fatal(err)
		}
		if unpacked, err := io.ReadAll(r); err != nil || string(unpacked) != page.body || packed.header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: compressed, it is another page (%v, %v)", name, err, packed.header)
		}
	}
	if a := public.ask("GET", "/openapi.yaml", ""); strings.Contains(a.body, "\n  /admin/") || strings.Contains(a.body, "SLUICE_ADMIN_TOKEN") || strings.Contains(a.body, "DeskSale") {
		t.Error("the public document tells of operators' calls")
	}
	wantProblem(t, public.ask("POST", "/reference", ""), 405, "method-not-allowed")
}
