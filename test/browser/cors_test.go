package browser

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"sluice/test/testenv"
)

// A shop's own page buys through the API of either edge and reads refusals of the edge, if --cors-origins names its
// origin. Without the setting the browser blocks its requests.
func TestCallsFromAnotherSite(t *testing.T) {
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html><title>shop</title>")
	}))
	defer own.Close()
	const call = `fetch(%s, { method: %s, headers: { Authorization: "Bearer " + %s, "Idempotency-Key": '"a-%d"' } })
		.then((r) => r.status + " " + Boolean(r.headers.get("x-request-id") && r.headers.get("date")), (e) => e.name)`
	for name, edge := range edges {
		for _, allowed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, allowed %v", name, allowed), func(t *testing.T) {
				origin := own.URL
				if !allowed {
					origin = "https://shop.example"
				}
				s := edge(t, "SLUICE_CORS_ORIGINS="+origin, limitedPolicy(t, "1r/m"))
				s.create("limited", nil)
				b := open(t, newPerson(t), own.URL)
				calls := 0
				want := func(method, path, token, answer string) {
					t.Helper()
					calls++
					script := fmt.Sprintf(call, quote(s.base+path), quote(method), quote(token), calls)
					if !allowed {
						answer = "TypeError"
					}
					b.eval(`(window.answer = "", ` + script + `.then((a) => { window.answer = a; }), "")`)
					b.await("an answer to "+method+" "+path, `window.answer`)
					if got := b.eval(`window.answer`); got != answer {
						t.Errorf("%s %s: %s, want %s", method, path, got, answer)
					}
				}
				ann := s.token("ann", time.Hour)
				want("POST", "/v1/sales/limited/orders", ann, "202 true")
				want("GET", "/v1/me/orders?sale=limited", ann, "200 true")
				want("POST", "/v1/sales/limited/orders", "x", "401 true") // of the edge
				s.exhaust("bob")
				want("POST", "/v1/sales/limited/orders", s.token("bob", time.Hour), "429 true") // of the edge
				ordered := 0.0
				if allowed {
					ordered = 1
				}
				testenv.Eventually(t, slowTimeout, "the orders", func() bool { return s.ordered("limited") == ordered })
			})
		}
	}
}
