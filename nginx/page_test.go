package nginx

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
)

// A page costs the backend one request a second, however many look at it, in each language. What is kept depends on
// nothing else of a request, and is shown while no backend answers.
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
		if a := e.do(
			"GET",
			path,
			"Accept-Language",
			accept,
			"Accept-Encoding",
			"br",
		); a.status != 200 ||
			a.body != "the page, "+want {
			t.Fatalf("%s for %q: %d %q, want it in %s", path, accept, a.status, a.body, want)
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
	asked := shop.requests()
	if len(asked) > rounds {
		t.Errorf("%d requests for a page in two languages: %d reached the backend", 7*rounds, len(asked))
	}
	for _, r := range asked {
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

// A compressed script is served only to clients that accept it.
func TestScriptsAreKeptByEncoding(t *testing.T) {
	shop := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=1000, immutable")
		w.Header().Set("Vary", "Accept-Encoding")
		_, _ = fmt.Fprintf(w, "the script, %q", r.Header.Get("Accept-Encoding"))
	})
	e := startEdge(t, open, nil, shop.addr)
	for range 3 {
		for accept, want := range map[string]string{"gzip, br": "gzip", "br;q=1, GZIP": "gzip", "identity": ""} {
			if a := e.do("GET", "/assets/sale.0.js", "Accept-Encoding", accept); a.body != fmt.Sprintf("the script, %q", want) {
				t.Errorf("for %q: %s", accept, a.body)
			}
		}
	}
	if n := len(shop.requests()); n != 2 {
		t.Errorf("%d requests reached the backend", n)
	}
}
