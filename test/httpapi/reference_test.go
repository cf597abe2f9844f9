package httpapi

import (
	"bytes"
	"compress/gzip"
	"io"
	"slices"
	"strings"
	"testing"

	"sluice/backend/web/httpserver/servertest"
	"sluice/internal/openapi"
)

// Each listener serves the documentation of its own routes only, as JSON and as a page.
func TestEachListenerDocumentsItself(t *testing.T) {
	b := startBackend(t, "5-M")
	for name, s := range map[string]*servertest.Site{"public": b.public, "admin": b.admin} {
		a := s.Do("GET", "/openapi.yaml", "")
		if a.Status != 200 || a.Header.Get("Content-Type") != "application/yaml; charset=utf-8" ||
			a.Header.Get("Cache-Control") != "public, max-age=60" {
			t.Fatalf("%s: %d %v", name, a.Status, a.Header)
		}
		d, err := openapi.Parse([]byte(a.Body))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var want, got []string
		for _, r := range s.Server.Routes() {
			if !strings.HasPrefix(r.Path, "/.sluice/") {
				want = append(want, r.Method+" "+r.Documented())
			}
		}
		page := s.Do("GET", "/reference", "", "Accept-Encoding: identity")
		for op := range d.Operations() {
			got = append(got, op.Method+" "+op.Path)
			if !strings.Contains(page.Body, `<article id="`+op.Get("operationId").String()+`"`) {
				t.Errorf("%s: the page lacks %s %s", name, op.Method, op.Path)
			}
		}
		slices.Sort(want)
		want = slices.Compact(want) // a path with and without a trailing slash is one
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("%s documents\n%v\nwant\n%v", name, got, want)
		}
		if strings.Contains(a.Body, "127.0.0.1") || !strings.Contains(a.Body, "url: /") {
			t.Errorf("%s: the server URL is not that of the listener", name)
		}
		if policy := page.Header.Get(
			"Content-Security-Policy",
		); page.Status != 200 || !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") ||
			page.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: the page: %d %v", name, page.Status, page.Header)
		}
		packed := s.Do("GET", "/reference", "", "Accept-Encoding: br, gzip")
		r, err := gzip.NewReader(bytes.NewReader([]byte(packed.Body)))
		if err != nil {
			t.Fatal(err)
		}
		if unpacked, err := io.ReadAll(r); err != nil || string(unpacked) != page.Body ||
			packed.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: the compressed page differs (%v, %v)", name, err, packed.Header)
		}
	}
	public, admin := b.public.Do("GET", "/openapi.yaml", "").Body, b.admin.Do("GET", "/openapi.yaml", "").Body
	for _, private := range []string{"\n  /admin/", "SLUICE_ADMIN_TOKEN", "AdminSale", "\nwebhooks:"} {
		if !strings.Contains(admin, private) {
			t.Errorf("the admin document does not contain %q", private)
		}
		if strings.Contains(public, private) {
			t.Errorf("the public document contains %q of the admin API", private)
		}
	}
	servertest.WantProblem(t, b.public.Do("POST", "/reference", ""), 405, "method-not-allowed")
}
