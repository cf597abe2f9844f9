package nginx

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/test/testenv"
)

// A backend that is an edge itself, such as that of sluice up, reports the quota of the client that made nginx request
// the page. Other clients must not get it.
func TestStoredPageHasNoQuotaOfAnotherClient(t *testing.T) {
	t.Parallel()
	shop := startBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=60")
		w.Header().Set("RateLimit-Policy", `"ip";q=41;w=3`)
		w.Header().Set("RateLimit", `"ip";r=40;t=1`)
		_, _ = fmt.Fprint(w, "here")
	})
	e := startEdge(t, open, nil, shop.addr)
	for _, path := range []string{"/s/shoe", "/assets/page.js"} {
		for i := range 2 {
			a := e.do("GET", path)
			if a.body != "here" || a.header.Get("RateLimit") != "" || a.header.Get("RateLimit-Policy") != "" {
				t.Errorf("%s, request %d: %d %s %v", path, i, a.status, a.body, a.header)
			}
		}
	}
}

// The backend gets one request a second for a page in each language, from any number of clients. The cache key depends
// on nothing else of a request, and a cached page is served while no backend answers.
func TestPagesAreKept(t *testing.T) {
	var down atomic.Bool
	shop := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=1")
		w.Header().Set("Vary", "Accept-Language")
		_, _ = fmt.Fprintf(w, "the page, %s", r.Header.Get("Accept-Language"))
	})
	e := startEdge(t, open, nil, shop.addr)
	look := func(path, accept, want string) {
		t.Helper()
		if a := e.do("GET", path, "Accept-Language", accept, "Accept-Encoding", "br"); a.status != 200 ||
			a.body != "the page, "+want {
			t.Fatalf("%s for %q: %d %q, want the page in %s", path, accept, a.status, a.body, want)
		}
	}
	const rounds = 200
	for range rounds {
		look("/s/shoe", "de, zh-CN;q=0.9, en;q=0.8", "zh")
		look("/s/shoe", "zh", "zh")
		look("/s/shoe?lang=zh", "en", "zh")
		look("/s/shoe", "en-GB,zh;q=0.5", "en")
		look("/s/shoe", "", "en")
		look("/s/shoe?lang=en&x=1", "zh", "en")
		look("/s/shoe?lang=fr", "de", "en")
	}
	forwarded := shop.requests()
	if len(forwarded) > rounds {
		t.Errorf("%d requests for a page in two languages: %d reached the backend", 7*rounds, len(forwarded))
	}
	for _, r := range forwarded {
		if l := r.header.Get("Accept-Language"); r.path != "/s/shoe" || (l != "en" && l != "zh") {
			t.Errorf("the backend got a request for %s in %q", r.path, l)
		}
	}
	down.Store(true)
	for range rounds {
		look("/s/shoe", "en", "en")
	}
	shop.stop()
	look("/s/shoe", "zh", "zh")
}

// A compressed page or script is served only to clients that accept it.
func TestPagesAndScriptsAreKeptByEncoding(t *testing.T) {
	shop := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=1000, immutable")
		w.Header().Set("Vary", "Accept-Encoding")
		_, _ = fmt.Fprintf(w, "the file, %q", r.Header.Get("Accept-Encoding"))
	})
	e := startEdge(t, open, nil, shop.addr)
	for range 3 {
		for accept, want := range map[string]string{
			"gzip, br": "gzip", "br;q=1, GZIP": "gzip", "identity": "", "br,\tgzip ;q=0.01": "gzip", "gzip;q=1.0, br": "gzip",
			"gzip;q=0": "", "gzip;q=0, br": "", "br, gzip ; q=0.000": "", "x-gzip, gzips": "", "gzip;Q=0": "", "*": "",
		} {
			for _, path := range []string{"/assets/sale.0.js", "/s/shoe"} {
				if a := e.do("GET", path, "Accept-Encoding", accept); a.body != fmt.Sprintf("the file, %q", want) {
					t.Errorf("%s for %q: %s", path, accept, a.body)
				}
			}
		}
	}
	scripts := 0
	for _, r := range shop.requests() {
		if r.path != "/s/shoe" { // a page is renewed every second
			scripts++
		}
	}
	if scripts != 2 {
		t.Errorf("%d requests for the script reached the backend", scripts)
	}
}

// A page that a backend shows for a token only is not shown to other clients, and is shown again for the token.
func TestPageOfATokenIsNotShared(t *testing.T) {
	shop := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization")+r.Header.Get("Token") == "" {
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Cache-Control", "public, max-age=1")
		_, _ = fmt.Fprint(w, "the rehearsal")
	})
	e := startEdge(t, open, nil, shop.addr)
	for range 100 {
		for _, c := range []struct {
			header []string
			status int
		}{
			{[]string{"Authorization", "Bearer x"}, 200}, {nil, 404}, {[]string{"Token", "x"}, 200}, {nil, 404},
		} {
			for _, path := range []string{"/s/rehearsal", "/assets/rehearsal.js"} {
				if a := e.do("GET", path, c.header...); a.status != c.status {
					t.Fatalf("%s with %v: %d, want %d", path, c.header, a.status, c.status)
				}
			}
		}
	}
}

// The page of a removed sale expires after a second, also while clients request it without a pause, and although a
// backend forbids to store its 404. The old page does not return when no backend answers.
func TestRemovedPageIsGone(t *testing.T) {
	var removed, down atomic.Bool
	shop := startBackend(t, func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case removed.Load():
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNotFound)
		default:
			w.Header().Set("Cache-Control", "public, max-age=1")
			_, _ = fmt.Fprint(w, "the page")
		}
	})
	e := startEdge(t, open, nil, shop.addr)
	becomes := func(status int) {
		t.Helper()
		testenv.Eventually(t, time.Minute, fmt.Sprintf("the page becomes %d", status), func() bool {
			return e.do("GET", "/s/shoe").status == status
		})
		for range 100 {
			if got := e.do("GET", "/s/shoe").status; got != status {
				t.Fatalf("the status of the page has changed to %d, want %d", got, status)
			}
		}
	}
	becomes(200)
	removed.Store(true)
	becomes(404)
	down.Store(true)
	for range 100 {
		if got := e.do("GET", "/s/shoe").status; got != 404 {
			t.Fatalf("without a backend: %d, want 404", got)
		}
	}
	down.Store(false)
	removed.Store(false)
	becomes(200)
}

// A response for one client only is never stored, with any status.
func TestPrivatePageIsNotKept(t *testing.T) {
	for _, cache := range []string{"", "no-store", "private, max-age=9", "no-cache, max-age=9", "max-age=0", "public, max-age=00"} {
		shop := startBackend(t, func(w http.ResponseWriter, _ *http.Request) {
			if cache != "" {
				w.Header().Set("Cache-Control", cache)
			}
			_, _ = fmt.Fprint(w, "a page")
		})
		e := startEdge(t, open, nil, shop.addr)
		for range 3 {
			if a := e.do("GET", "/s/shoe"); a.status != 200 {
				t.Fatalf("%q: %d", cache, a.status)
			}
		}
		if n := len(shop.requests()); n != 3 {
			t.Errorf("%q: %d of 3 requests reached the backend", cache, n)
		}
	}
}

// A part of a file is not served, and a response to a client that has the file is not cached in place of the file.
func TestWholeFilesAreKept(t *testing.T) {
	const file = "the whole file"
	shop := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=1000")
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "a.js", time.Unix(1_700_000_000, 0), strings.NewReader(file))
	})
	e := startEdge(t, open, nil, shop.addr)
	for i, c := range []struct{ name, value, want string }{
		{"Range", "bytes=0-2", "200 the whole file"}, {"If-None-Match", `"v1"`, "304 "},
		{"If-Modified-Since", "Tue, 14 Nov 2023 22:13:20 GMT", "304 "},
	} {
		for _, path := range []string{fmt.Sprint("/assets/", i, ".js"), fmt.Sprint("/s/", i)} {
			for range 2 { // from the backend, then from the cache
				a := e.do("GET", path, "Accept-Encoding", "identity", c.name, c.value)
				if got := fmt.Sprint(a.status, " ", a.body); got != c.want {
					t.Errorf("%s with %s: %q, want %q", path, c.name, got, c.want)
				}
				if a := e.do("GET", path, "Accept-Encoding", "identity"); a.status != 200 || a.body != file {
					t.Errorf("%s after %s: %d %q", path, c.name, a.status, a.body)
				}
			}
		}
	}
	assets := 0
	for _, r := range shop.requests() {
		if strings.HasPrefix(r.path, "/assets/") { // a page is renewed every second
			assets++
		}
	}
	if assets != 3 {
		t.Errorf("%d requests for three files reached the backend", assets)
	}
}

// A backend judges an escaped path as the client wrote it, also when the page of the decoded path is cached.
func TestEscapedPathIsNotThePageOfAnother(t *testing.T) {
	shop := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=1000")
		if r.RequestURI != "/s/shoe" && r.RequestURI != "/assets/a.js" {
			w.WriteHeader(http.StatusNotFound)
		}
	})
	e := startEdge(t, open, nil, shop.addr)
	for range 3 {
		for path, want := range map[string]int{
			"/s/shoe": 200, "/s/shoe?a=%20": 200, "/s/sh%6fe": 404, "/%73/shoe": 404, "/s/sh%6fe?lang=zh": 404,
			"/assets/a.js": 200, "/assets/%61.js": 404,
		} {
			if got := e.do("GET", path).status; got != want {
				t.Errorf("%s: %d, want %d", path, got, want)
			}
		}
	}
}

// nginx redirects no path without its last slash: it would do that before the head is judged and limits are evaluated.
func TestNoPathIsRedirected(t *testing.T) {
	backend := echo(t)
	e := startEdge(t, open, nil, backend.addr)
	for _, path := range []string{"/assets", "/assets?x", "/%61ssets", "/ASSETS", "/s", "/v1", "/v1/sales"} {
		if got := e.do("GET", path); got.status != 200 {
			t.Errorf("%s: %d %v, and not the answer of a backend", path, got.status, got.header)
		}
		raw := "GET  " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
		if got := e.raw(raw); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
			t.Errorf("two spaces before %s: %.60q", path, got)
		}
	}
}
