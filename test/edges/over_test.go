package edges

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

// Every client that has sent one request is over the limit. The nginx edge refuses before it selects a location, so the
// refusal must have the settings of the location.
const strict = `return { trusted_proxies = { "127.0.0.1" }, repeat_refusals = false, rules = {
	{ name = "ip", key = "ip", rate = "1r/h", burst = 0 },
} }`

func TestLimitRejectsOnlyMatchingRequests(t *testing.T) {
	both := startBoth(t, options{policy: strict}, play)
	const client, last = "X-Forwarded-For: 192.0.2.1", "Connection: close"
	for _, x := range []exchange{
		{name: "the first", raw: request("GET", "/", client, last), codes: "200"},
		{name: "the second", raw: request("GET", "/", client, last), codes: "429"},
		{name: "another page", raw: request("GET", "/v1/sales/1?a=b", client, last), codes: "429"},
		{
			name:  "a purchase",
			raw:   request("POST", "/v1/sales/1/orders", client, bearer(t, "ann"), "Content-Length: 2", last) + "{}",
			codes: "429",
		},
		{
			name: "two on one connection", raw: request("GET", "/", client) + request("GET", "/", client, last),
			codes: "429 429",
		},
		{name: "another client", raw: request("GET", "/", "X-Forwarded-For: 192.0.2.2", last), codes: "200"},
		{
			name: "many headers", raw: request("GET", "/", append(slices.Repeat([]string{"A: b"}, 20), client, last)...),
			codes: "429",
		},
		{name: "two lines of hops", raw: request("GET", "/", "X-Forwarded-For: 192.0.2.9", client, last), codes: "429"},
		{
			name: "a chunked body", raw: request("POST", "/", client, "Transfer-Encoding: chunked") + "1\r\na\r\n0\r\n\r\n",
			codes: "429",
		},
		{name: "HEAD", raw: request("HEAD", "/", client, last), methods: []string{"HEAD"}, codes: "429"},

		{name: "health", raw: request("GET", "/healthz", client, last), codes: "200"},
		{name: "health in capitals is a page", raw: request("GET", "/Healthz", client, last), codes: "429"},
		{name: "health and more is a page", raw: request("GET", "/healthz/x", client, last), codes: "429"},
		{name: "admin paths", raw: request("GET", "/admin", client, last), codes: "404"},
		{name: "admin paths in capitals", raw: request("GET", "/ADMINs/x", client, last), codes: "404"},
		{name: "metrics", raw: request("GET", "/metrics", client, last), codes: "404"},
		{name: "metrics and more", raw: request("GET", "/Metrics/x", client, last), codes: "404"},
		{name: "a path that begins like metrics is a page", raw: request("GET", "/metricsx", client, last), codes: "429"},
		{name: "debug", raw: request("GET", "/debug/pprof", client, last), codes: "404"},
		{name: "between edge and backends", raw: request("GET", "/.sluice/sales/1/holders", client, last), codes: "404"},
		{name: "a hidden file is a page", raw: request("GET", "/.well-known/x", client, last), codes: "429"},

		{name: "an odd path", raw: request("GET", "/a//b", client), codes: "400"},
		{name: "an odd path, once more", raw: request("GET", "/a//b", client), codes: "400"},
		{name: "an odd host", raw: "GET / HTTP/1.1\r\nHost: shop_example,8080\r\n" + client + "\r\n\r\n", codes: "400"},
		{name: "a malformed head", raw: request("GET", "/", client, "A : b"), codes: "400"},
		{name: "two tokens", raw: request("GET", "/", client, "Token: a", "Token: b"), codes: "400"},
		{
			name: "a body that is too large",
			raw:  request("POST", "/", client, "Content-Length: 16385") + strings.Repeat("a", 16385), codes: "413",
		},
		{
			name: "a body within the limit",
			raw:  request("POST", "/", client, "Content-Length: 16384", last) + strings.Repeat("a", 16384), codes: "429",
		},
	} {
		compare(t, both, x)
	}
}

// A browser that opens an address over a limit, or while no backend answers, gets a page that reloads itself. All other
// clients get the problem document. Neither is stored, because the two have the same address.
func TestBrowsersThatMustRetryGetAPage(t *testing.T) {
	t.Run("429", func(t *testing.T) {
		t.Parallel()
		both := startBoth(t, options{policy: strict}, play)
		compare(t, both, exchange{name: "the first", raw: request("GET", "/", oneClient, "Connection: close"), codes: "200"})
		onlyBrowsersGetThePage(t, both, "429", "from your connection", "您的网络请求过于频繁")
	})
	t.Run("503", func(t *testing.T) {
		t.Parallel()
		both := startBoth(t, options{policy: `return { rules = {} }`, upstream: testenv.FreeAddress(t)}, nil)
		onlyBrowsersGetThePage(t, both, "503", "Accepted orders are safe", "已受理的订单不会丢失")
	})
}

const oneClient = "X-Forwarded-For: 192.0.2.1"

// onlyBrowsersGetThePage sends requests that both edges answer with codes, and expects the texts on the page.
func onlyBrowsersGetThePage(t *testing.T, both []*edge, codes string, texts ...string) {
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	for _, c := range []struct {
		name, method, accept string
		page                 bool
	}{
		{"a browser", "GET", browser, true},
		{"HTML alone", "GET", "text/html", true},
		{"HTML with a weight", "GET", "text/html;q=0.9", true},
		{"a script", "GET", "*/*", false},
		{"a client of the API", "GET", "application/json", false},
		{"HTML after JSON", "GET", "application/json, text/html", false},
		{"a type that begins like HTML", "GET", "text/html5", false},
		{"another method", "POST", browser, false},
		{"HEAD", "HEAD", browser, false},
	} {
		for _, target := range []string{"/s/shoe", "/"} {
			x := exchange{name: c.name, raw: request(c.method, target, oneClient, "Accept: "+c.accept, "Connection: close"),
				methods: []string{c.method}, codes: codes}
			compare(t, both, x)
			for _, e := range both {
				got := e.send(t, x.raw, x.methods...)
				h := got.headers[0]
				isPage := h.Get("Content-Type") == "text/html; charset=utf-8"
				for _, text := range texts {
					isPage = isPage && strings.Contains(got.answers[0], text)
				}
				if isPage != c.page || h.Get("Cache-Control") != "no-store" || h.Get("Retry-After") == "" {
					t.Errorf("%s: %s answers with %v", c.name, e.name, got.answers)
				}
				if unset := strings.Contains(got.answers[0], "$sluice"); unset {
					t.Errorf("%s: %s answers with an unset variable: %v", c.name, e.name, got.answers)
				}
			}
		}
	}
}

// Lenient routers accept other spellings of a path, so a rule applies to all of them. A path that can be read in two
// ways is rejected.
func TestRulesCoverAllSpellingsOfAPath(t *testing.T) {
	both := startBoth(t, options{policy: `return { rules = {
		{ name = "token", key = "token", rate = "1r/s", match = { method = "POST", path = "/v1/sales/*/orders" } },
	} }`}, play)
	for codes, targets := range map[string]string{
		"401": `/v1/sales/42/orders /v1/sales/42/orders?x=/ /v1/sales/42/orders/ /V1/SALES/42/ORDERS /v1/sales/42/order%73
			/%761/sales/%34%32/orders /v1/sales/42/orders?a//b/../c%2F`,
		"400": `//v1/sales/42/orders /v1//sales/42/orders /v1/./sales/42/orders /x/../v1/sales/42/orders
			/x/%2e%2e/v1/sales/42/orders /v1/sales/42%2Forders /v1/sales/42%2forders /v1\sales\42\orders
			/v1/sales/42/orders%00 /v1/sales/42/orders%0a /v1/sales/42/orders%7F /v1/sales/42/orders% /v1/sales/42/orders%zz`,
		"200": `/v1/sales/42/orders%20 /v1/sales/42/orders;x /v1/sales/42/orders/more /v1/sales/orders /v1/sales/4/2/orders
			/v1/sales/42/order /other?/v1/sales/42/orders=/../..`,
	} {
		for _, target := range strings.Fields(targets) {
			compare(t, both, exchange{name: target, raw: request("POST", target, "Connection: close"), codes: codes})
		}
	}
	compare(t, both, exchange{
		name: "another method", raw: request("GET", "/v1/sales/42/orders", "Connection: close"), codes: "200",
	})
}

// An IPv6 client has a /64, and an IPv4 client may be written as IPv6.
func TestClientsHaveTheirOwnBuckets(t *testing.T) {
	both := startBoth(t, options{policy: strict}, play)
	for _, c := range [][2]string{
		{"198.51.100.1", "200"}, {"203.0.113.9, 198.51.100.1", "429"}, {"198.51.100.2", "200"},
		{"2001:db8:0:1::1", "200"}, {"2001:db8:0:1:ffff::2", "429"}, {"2001:db8:0:2::1", "200"},
		{"::ffff:198.51.100.1", "429"}, {"::ffff:c633:6402", "429"},
	} {
		raw := request("GET", "/", "X-Forwarded-For: "+c[0], "Connection: close")
		compare(t, both, exchange{name: c[0], raw: raw, codes: c[1]})
	}
}

// A limit by token rejects early when the token is cached, and late when it came in the other header: clients and the
// log see no difference.
func TestEarlyAndLateRejectionsAreEqual(t *testing.T) {
	t.Parallel()
	both := startBoth(t, options{policy: `return { trusted_proxies = { "127.0.0.1" }, repeat_refusals = false, rules = {
		{ name = "ip", key = "ip", rate = "1000r/s", burst = 1000 },
		{ name = "token", key = "token", rate = "1r/h", burst = 0, match = { method = "POST", path = "/v1/sales/*/orders" } },
	} }`}, play)
	const client, last = "X-Forwarded-For: 192.0.2.1", "Connection: close"
	early := request("POST", "/v1/sales/1/orders", client, bearer(t, "ann"), last)
	late := request("POST", "/v1/sales/1/orders", client,
		"Token:"+strings.TrimPrefix(bearer(t, "ann"), "Authorization: Bearer"), last)
	for _, x := range []exchange{
		{name: "the first", raw: early, codes: "202"},
		{name: "late", raw: late, codes: "429"},
	} {
		compare(t, both, x)
	}
	for range 6 { // until both workers have cached the token
		compare(t, both, exchange{name: "early", raw: early, codes: "429"})
	}
	for _, e := range both {
		a, b := e.send(t, early), e.send(t, late)
		if !slices.Equal(a.answers, b.answers) {
			t.Errorf("%s: early\n%v\n\nand late\n%v", e.name, a.answers, b.answers)
		}
		testenv.Eventually(t, time.Minute, e.name+" has logged all",
			func() bool { return strings.Count(e.log(), "\n") == 10 })
		denied := 0
		for line := range strings.Lines(e.log()) {
			if strings.Contains(line, `"client":"192.0.2.1","buyer":"ann"`) &&
				strings.Contains(line, `"verdict":"deny","rule":"token","remaining":"0","shadow":"","reason":""`) {
				denied++
			}
		}
		if denied != 9 {
			t.Errorf("%s logs %d refusals, want 9:\n%s", e.name, denied, e.log())
		}
		testenv.Eventually(t, time.Minute, e.name+" has counted them", func() bool {
			return strings.Contains(e.metrics(), `requests_total{rule="token",verdict="deny"} 9`)
		})
	}
}
