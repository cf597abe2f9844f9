package edges

import (
	"strings"
	"testing"
)

// Both edges answer preflights of allowed origins without a limit and without a backend, and let these origins read
// all responses of the API, including refusals of the edge. Other requests are handled as without the setting.
func TestEdgesAllowTheSameOrigins(t *testing.T) {
	const allowed = "https://shop.example"
	policy := strings.Replace(shop, "rules = {", `rules = {
		{ name = "once", key = "ip", rate = "1r/h", burst = 0, match = { path = "/v1/once" } },`, 1)
	both := startBoth(t, options{policy: policy, cors: []string{allowed, "http://localhost:3000"}}, play)
	var c clients
	busy, token := c.next(), bearer(t, "cors")
	const purchase, preflight, last = "/v1/sales/1/orders", "Access-Control-Request-Method: POST", "Connection: close"
	headers := "Access-Control-Request-Headers: authorization,idempotency-key"
	for _, x := range []exchange{
		{name: "preflight", raw: request("OPTIONS", purchase, c.next(), last, "Origin: "+allowed, preflight, headers), codes: "204"},
		{name: "another origin", raw: request("OPTIONS", "/v1/sales", c.next(), last, "Origin: http://localhost:3000", preflight), codes: "204"},
		{name: "capitals", raw: request("OPTIONS", purchase, c.next(), last, "oRIGIN: HTTPS://Shop.example", preflight), codes: "204"},
		{name: "body", raw: request("OPTIONS", purchase, c.next(), last, "Origin: "+allowed, preflight, "Content-Length: 2") + "{}", codes: "204"},
		{name: "unknown origin", raw: request("OPTIONS", purchase, c.next(), last, "Origin: https://evil.example", preflight), codes: "202"},
		{name: "origin that begins alike", raw: request("OPTIONS", purchase, c.next(), last, "Origin: "+allowed+".evil.example", preflight), codes: "202"},
		{name: "null", raw: request("OPTIONS", purchase, c.next(), last, "Origin: null", preflight), codes: "202"},
		{name: "no origin", raw: request("OPTIONS", purchase, c.next(), last, preflight), codes: "202"},
		{name: "no preflight", raw: request("OPTIONS", purchase, c.next(), last, "Origin: "+allowed), codes: "202"},
		{name: "empty method", raw: request("OPTIONS", purchase, c.next(), last, "Origin: "+allowed, "Access-Control-Request-Method: "), codes: "202"},
		{name: "two origins", raw: request("OPTIONS", purchase, c.next(), last, "Origin: https://evil.example", "Origin: "+allowed, preflight), codes: "202"},
		{name: "outside of the API", raw: request("OPTIONS", "/page", c.next(), last, "Origin: "+allowed, preflight), codes: "200"},
		{name: "internal path", raw: request("OPTIONS", "/.sluice/signals", c.next(), last, "Origin: "+allowed, preflight), codes: "404"},
		{name: "malformed path", raw: request("OPTIONS", "/v1/sales//1", c.next(), last, "Origin: "+allowed, preflight), codes: "400"},
		{name: "malformed header", raw: request("OPTIONS", purchase, c.next(), last, "Origin: "+allowed, preflight, "a b: c"), codes: "400"},
		{name: "read", raw: request("GET", "/v1/sales", c.next(), last, "Origin: "+allowed), codes: "200"},
		{name: "another origin", raw: request("GET", "/v1/sales", c.next(), last, "Origin: https://evil.example"), codes: "200"},
		{name: "purchase", raw: request("POST", purchase, c.next(), last, "Origin: "+allowed, token), codes: "202"},
		{name: "without a token", raw: request("POST", purchase, c.next(), last, "Origin: "+allowed), codes: "401"},
		{name: "refusal of the backend", raw: request("GET", "/v1/orders/none", c.next(), last, "Origin: "+allowed), codes: "404"},
		{name: "page", raw: request("GET", "/page", c.next(), last, "Origin: "+allowed), codes: "200"},
		{name: "port", raw: request("OPTIONS", purchase, c.next(), last, "Origin: "+allowed+":443", preflight), codes: "202"},
		{name: "dot behind the host", raw: request("OPTIONS", purchase, c.next(), last, "Origin: "+allowed+".", preflight), codes: "202"},
		{name: "user", raw: request("OPTIONS", purchase, c.next(), last, "Origin: https://a@shop.example", preflight), codes: "202"},
		{name: "another scheme", raw: request("OPTIONS", purchase, c.next(), last, "Origin: http://shop.example", preflight), codes: "202"},
		{name: "list", raw: request("OPTIONS", purchase, c.next(), last, "Origin: "+allowed+", "+allowed, preflight), codes: "202"},
		{name: "empty origin first", raw: request("OPTIONS", purchase, c.next(), last, "Origin: ", "Origin: "+allowed, preflight), codes: "202"},
		{name: "escaped path", raw: request("OPTIONS", "/v%31/sales", c.next(), last, "Origin: "+allowed, preflight), codes: "204"},
		{name: "path in capitals", raw: request("OPTIONS", "/V1/sales", c.next(), last, "Origin: "+allowed, preflight), codes: "200"},
		{name: "path out of the API", raw: request("OPTIONS", "/v1/../page", c.next(), last, "Origin: "+allowed, preflight), codes: "400"},
		{name: "admin API", raw: request("OPTIONS", "/admin/v1/sales", c.next(), last, "Origin: "+allowed, preflight), codes: "404"},
		{name: "chunked", raw: request("OPTIONS", purchase, c.next(), last, "Origin: "+allowed, preflight, "Transfer-Encoding: chunked") +
			"0\r\n\r\n", codes: "202"},
		{name: "method in small letters", raw: request("options", purchase, c.next(), last, "Origin: "+allowed, preflight), codes: "400"},
		{name: "body that is too large", raw: request("POST", purchase, c.next(), last, "Origin: "+allowed, token,
			"Content-Length: 100000000000"), codes: "413"},
		{name: "body that is too large, unknown origin", raw: request("POST", purchase, c.next(), last,
			"Origin: https://evil.example", token, "Content-Length: 100000000000"), codes: "413"},
		{name: "limited", raw: strings.Repeat(request("GET", "/v1/once", busy, "Origin: "+allowed), 2) +
			request("GET", "/v1/once", busy, last, "Origin: "+allowed), codes: "200 429 429"},
		{name: "preflight of a client over its limit", raw: request("OPTIONS", "/v1/once", busy, last, "Origin: "+allowed, preflight), codes: "204"},
	} {
		t.Run(x.name, func(t *testing.T) { compare(t, both, x) })
	}
	for _, e := range both {
		client := c.next()
		flood := strings.Repeat(request("OPTIONS", purchase, client, "Origin: "+allowed, preflight), 200) // the burst is 50
		got := e.send(t, flood+request("OPTIONS", purchase, client, last, "Origin: "+allowed, preflight))
		for _, code := range got.codes {
			if code != 204 {
				t.Fatalf("%s limits preflights: %v", e.name, got.codes)
			}
		}
		for _, want := range []string{
			"Access-Control-Allow-Origin: " + allowed, "Access-Control-Allow-Methods: GET, HEAD, POST, DELETE",
			"Access-Control-Max-Age: 7200", "Idempotency-Key", "Vary: Origin",
		} {
			if !strings.Contains(got.answers[0], want) {
				t.Errorf("%s: the preflight lacks %q:\n%s", e.name, want, got.answers[0])
			}
		}
		if n := len(e.backend.take()); n > 0 {
			t.Errorf("%s: %d preflights reached the backend", e.name, n)
		}
	}
}
