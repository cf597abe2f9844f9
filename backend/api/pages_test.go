package api

import (
	"compress/gzip"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/backend/sale"
	"sluice/backend/web/httpserver/servertest"
)

// A page may be cached for a second, runs only its own script, and cannot be framed. Errors are pages too.
func TestSalePages(t *testing.T) {
	w := newWorld()
	s := w.serve(t)
	for _, c := range []struct {
		path, accept string
		status       int
		lang, cache  string
		text         string
	}{
		{"/s/drop", "en", 200, "en", "public, max-age=1", "Tea &amp; &lt;cups&gt;"},
		{"/s/drop", "zh-CN", 200, "zh", "public, max-age=1", "剩余 42 / 100"},
		{"/s/drop?lang=zh", "en", 200, "zh", "public, max-age=1", "剩余"},
		{"/", "en", 200, "en", "public, max-age=1", `href="/s/drop?lang=en"`},
		{"/s/none", "en", 404, "en", "no-store", "Sale not found<"},
		{"/s/" + strings.Repeat("x", 65), "en", 404, "en", "no-store", "Sale not found<"},
		{"/s/%22%3E", "en", 404, "en", "no-store", "Sale not found<"},
	} {
		a := s.Do("GET", c.path, "", "Accept-Language: "+c.accept)
		if a.Status != c.status || !strings.Contains(a.Body, c.text) || a.Header.Get("Content-Language") != c.lang ||
			a.Header.Get("Cache-Control") != c.cache {
			t.Errorf("%s for %q: %d, %s, %s\n%s", c.path, c.accept, a.Status, a.Header.Get("Content-Language"),
				a.Header.Get("Cache-Control"), a.Body)
		}
		policy := a.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'; script-src 'self';") ||
			!strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") ||
			a.Header.Get("X-Content-Type-Options") != "nosniff" ||
			a.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			t.Errorf("%s: headers %v", c.path, a.Header)
		}
	}
	for _, path := range []string{"/", "/s/drop", "/s/none"} {
		plain := s.Do("GET", path, "", "Accept-Encoding: identity")
		packed := s.Do("GET", path, "", "Accept-Encoding: br, gzip")
		r, err := gzip.NewReader(strings.NewReader(packed.Body))
		if err != nil {
			t.Fatal(err)
		}
		now := regexp.MustCompile(`data-now="\d+"`)
		body, err := io.ReadAll(r)
		if err != nil || now.ReplaceAllString(string(body), "") != now.ReplaceAllString(plain.Body, "") ||
			packed.Header.Get("Content-Encoding") != "gzip" || plain.Header.Get("Content-Encoding") != "" ||
			!slices.Equal(packed.Header.Values("Vary"), []string{"Accept-Language", "Accept-Encoding"}) {
			t.Errorf("%s: the compressed page differs (%v, %v)", path, err, packed.Header)
		}
	}
	w.do(func() { w.redisErr = errors.Join(errors.New("no connection"), sale.ErrUnavailable) })
	for _, path := range []string{"/", "/s/drop"} {
		if a := s.Do("GET", path, ""); a.Status != 503 || a.Header.Get("Retry-After") == "" ||
			a.Header.Get("Cache-Control") != "no-store" || !strings.Contains(a.Body, `http-equiv="refresh"`) {
			t.Errorf("%s without Redis: %d %v\n%s", path, a.Status, a.Header, a.Body)
		}
	}
}

// The files that a page names exist, compressed for clients that accept it; only these may be cached.
func TestAssets(t *testing.T) {
	s := newWorld().serve(t)
	names := regexp.MustCompile(`/assets/[a-z.0-9]+`).FindAllString(s.Do("GET", "/s/drop", "").Body, -1)
	if len(names) != 2 {
		t.Fatalf("the page names %v", names)
	}
	for _, name := range names {
		plain := s.Do("GET", name, "", "Accept-Encoding: identity")
		packed := s.Do("GET", name, "", "Accept-Encoding: br, gzip")
		for what, a := range map[string]servertest.Answer{"plain": plain, "packed": packed} {
			if a.Status != 200 || a.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" ||
				a.Header.Get("Vary") != "Accept-Encoding" {
				t.Errorf("%s, %s: %d %v", name, what, a.Status, a.Header)
			}
		}
		if packed.Header.Get("Content-Encoding") != "gzip" || plain.Header.Get("Content-Encoding") != "" ||
			len(packed.Body) >= len(plain.Body) && strings.HasSuffix(name, ".js") {
			t.Errorf("%s: %d bytes, packed %d (%q)", name, len(plain.Body), len(packed.Body),
				packed.Header.Get("Content-Encoding"))
		}
	}
	other := regexp.MustCompile(`[0-9a-f]{12}`).ReplaceAllString(names[1], "000000000000")
	if a := s.Do("GET", other, ""); a.Status != 200 || a.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s, of another version: %d, %s", other, a.Status, a.Header.Get("Cache-Control"))
	}
	servertest.WantProblem(t, s.Do("GET", "/assets/none.js", ""), 404, "not-found")
	servertest.WantProblem(t, s.Do("POST", "/s/drop", ""), 405, "method-not-allowed")
}
