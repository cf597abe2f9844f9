package edges

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Each case has its own client and buckets, by the address that a trusted proxy sends.
const shop = `return { trusted_proxies = { "127.0.0.1" }, repeat_refusals = false, rules = {
	{ name = "ip", key = "ip", rate = "100r/s", burst = 50 },
	{ name = "slow", key = "ip", rate = "1r/h", burst = 0, match = { path = "/slow" } },
	{ name = "token", key = "token", rate = "10r/m", burst = 1, match = { method = "POST", path = "/v1/sales/*/orders" } },
} }`

// play answers as its path specifies.
func play(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/v1/sales/1/orders":
		h.Set("Location", "/v1/orders/123")
		h.Set("X-Request-Id", "the backend's")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"order_id":"123","sale_id":"1","status":"queued"}`)
	case "/v1/sales/2/orders":
		h.Set("Content-Type", "application/problem+json")
		h.Set("Cache-Control", "no-store")
		h.Set("Sluice-Sale", "2;state=sold_out;version=1;ttl=1000;holders=5")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"type":"about:blank","title":"Sold out","status":409,"code":"sold-out"}`)
	case "/v1/orders/none":
		w.WriteHeader(http.StatusNotFound)
	case "/nothing":
		w.WriteHeader(http.StatusNoContent)
	case "/same":
		h.Set("ETag", `"a"`)
		w.WriteHeader(http.StatusNotModified)
	case "/much":
		_, _ = io.WriteString(w, strings.Repeat("x", 200_000))
	case "/limited":
		h.Set("RateLimit", `"user";r=0;t=1`)
		h.Set("RateLimit-Policy", `"user";q=10;w=1`)
		w.WriteHeader(http.StatusTooManyRequests)
	case "/headers":
		for name, value := range map[string]string{"ETag": `W/"x"`, "Last-Modified": "Sat, 01 Nov 2025 00:00:00 GMT", "Cache-Control": "max-age=1", "Vary": "Accept", "Content-Encoding": "br",
			"X-Accel-Redirect": "/admin", "X-Accel-Buffering": "no", "X-Accel-Expires": "60",
			"Location": "http://sluice_backend/x", "Www-Authenticate": "Bearer", "Sluice-Sale": "x",
			"X-Frame-Options": "DENY", "Link": "</a>; rel=b", "Refresh": "5; url=http://sluice_backend/"} {
			h.Set(name, value)
		}
		h.Add("Set-Cookie", "a=b")
		h.Add("Set-Cookie", "c=d")
	case "/untyped":
		h["Content-Type"] = nil
		_, _ = io.WriteString(w, "x")
	case "/status":
		status, _ := strconv.Atoi(r.URL.RawQuery)
		h.Set("Content-Type", "application/problem+json")
		h.Set("RateLimit", `"user";r=0;t=1`)
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"status":%d}`, status)
	case "/broken":
		panic(http.ErrAbortHandler)
	default:
		_, _ = io.WriteString(w, `{"ok":true}`)
	}
}

// exchange is the requests of one connection.
type exchange struct {
	name, raw string
	methods   []string
	codes     string // statuses that both must return; "" is any
	// the backend may get the request twice: a kept connection that closes without a response may have closed before
	again bool
}

// compare sends the same bytes through both edges and compares the output to the client and to the backend. It returns
// the requests that each backend receives. A request has the id of its response, which is not one of the client.
func compare(t *testing.T, both []*edge, x exchange) (behind string) {
	t.Helper()
	var first received
	for i, e := range both {
		got := e.send(t, x.raw, x.methods...)
		var requests []string
		for n, s := range e.backend.take() {
			if x.again && n == 1 && s.String() == requests[0] {
				continue
			}
			requests = append(requests, s.String())
			id := s.header.Get("X-Request-Id")
			if strings.Contains(x.raw, id) || !slices.ContainsFunc(got.headers,
				func(h http.Header) bool { return h.Get("X-Request-Id") == id }) {
				t.Errorf("%s: the backend of %s gets the id %q, unlike the client", x.name, e.name, id)
			}
		}
		if codes := strings.Trim(fmt.Sprint(got.codes), "[]"); x.codes != "" && codes != x.codes {
			t.Errorf("%s: %s answered %s, want %s", x.name, e.name, codes, x.codes)
		}
		if i == 0 {
			first, behind = got, strings.Join(requests, "\n\n")
			continue
		}
		if a, b := strings.Join(first.answers, "\n\n"), strings.Join(got.answers, "\n\n"); a != b {
			t.Errorf("%s: the client receives from %s\n%s\n\nand from %s\n%s", x.name, both[0].name, short(a), e.name, short(b))
		}
		if b := strings.Join(requests, "\n\n"); behind != b {
			t.Errorf("%s: the backend gets from %s\n%s\n\nand from %s\n%s", x.name, both[0].name, short(behind), e.name,
				short(b))
		}
		if first.closed != got.closed {
			t.Errorf("%s: %s closed the connection: %v, %s: %v", x.name, both[0].name, first.closed, e.name, got.closed)
		}
	}
	return behind
}

func short(s string) string {
	if len(s) > 2000 {
		return s[:2000] + "..."
	}
	return s
}

// client creates cases that do not share buckets.
type clients struct{ n int }

func (c *clients) next() string {
	c.n++
	return fmt.Sprintf("X-Forwarded-For: 198.51.%d.%d", c.n/250, c.n%250+1)
}

func request(method, target string, lines ...string) string {
	return method + " " + target + " HTTP/1.1\r\nHost: shop.example:8080\r\n" + strings.Join(append(lines, "\r\n"), "\r\n")
}

func TestEdgesForwardTheSameRequests(t *testing.T) { overBoth(t, edgesForwardTheSameRequests) }

func edgesForwardTheSameRequests(t *testing.T, socket bool) {
	both := startBoth(t, options{socket: socket, policy: shop}, play)
	var c clients
	const last = "Connection: close"
	for _, x := range []exchange{
		{name: "a page", raw: request("GET", "/", c.next(), last), codes: "200"},
		{name: "a query", raw: request("GET", "/v1/sales?a=b%20c&d=%2F..", c.next(), last), codes: "200"},
		{
			name: "a purchase",
			raw: request(
				"POST", "/v1/sales/1/orders", c.next(), bearer(t, "a1"), `Idempotency-Key: "k"`, "Content-Length: 2", last,
			) + "{}",
			codes: "202",
		},
		{
			name: "without a body",
			raw:  request("POST", "/v1/sales/1/orders", c.next(), bearer(t, "a2"), "Content-Length: 0", last), codes: "202",
		},
		{name: "without a length", raw: request("POST", "/v1/sales/1/orders", c.next(), bearer(t, "a3"), last), codes: "202"},
		{
			name: "in the other header",
			raw: request(
				"POST", "/v1/sales/1/orders", c.next(), "Token:"+strings.TrimPrefix(bearer(t, "a4"), "Authorization: Bearer"), last,
			),
			codes: "202",
		},
		{
			name: "in the other header with a scheme, after it was verified",
			raw: request("POST", "/v1/sales/1/orders", c.next(), bearer(t, "a4")) +
				request("POST", "/v1/sales/1/orders", c.next(), "Token:"+strings.TrimPrefix(bearer(t, "a4"), "Authorization:"), last),
			codes: "202 401",
		},
		{
			name: "an empty Authorization beside it",
			raw: request("POST", "/v1/sales/1/orders", c.next(), "Authorization:",
				"Token:"+strings.TrimPrefix(bearer(t, "a5"), "Authorization: Bearer"), last),
			codes: "202",
		},
		{
			name: "an Authorization of another scheme beside it",
			raw: request("POST", "/v1/sales/1/orders", c.next(), "Authorization: Basic eA==",
				"Token:"+strings.TrimPrefix(bearer(t, "a6"), "Authorization: Bearer"), last),
			codes: "401",
		},
		{name: "sold out", raw: request("POST", "/v1/sales/2/orders", c.next(), bearer(t, "a7"), last), codes: "409"},
		{
			name: "a chunked body",
			raw: request(
				"POST", "/v1/sales/1/orders", c.next(), bearer(t, "a8"), "Transfer-Encoding: chunked",
			) + "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nA: b\r\n\r\n" + request("GET", "/next"),
			codes: "202",
		},
		{
			name: "a chunked body behind other requests",
			raw: request("GET", "/healthz") + request("GET", "/v1/sales", c.next()) +
				request("POST", "/v1/sales/1/orders", c.next(), bearer(t, "a8b"), "Transfer-Encoding: chunked") +
				"3\r\nabc\r\n0\r\n\r\n" + request("GET", "/next"),
			codes: "200 200 202",
		},
		{name: "two tries of one buyer", raw: request(
			"POST", "/v1/sales/1/orders", c.next(), bearer(t, "a9"),
		) + request("POST", "/v1/sales/1/orders", c.next(), bearer(t, "a9")) +
			request("POST", "/v1/sales/1/orders", c.next(), bearer(t, "a9"), last), codes: "202 202 429"},
		{
			name: "a second one of a slow rule",
			raw: request("GET", "/slow", "X-Forwarded-For: 192.0.2.1") + request(
				"GET", "/slow", "X-Forwarded-For: 192.0.2.1", last,
			),
			codes: "200 429",
		},
		{
			name: "HEAD of a refusal", raw: request("HEAD", "/slow", "X-Forwarded-For: 192.0.2.1", last),
			methods: []string{"HEAD"}, codes: "429",
		},
		{name: "no token", raw: request("POST", "/v1/sales/1/orders", c.next(), last), codes: "401"},
		{
			name: "a bad token", raw: request("POST", "/v1/sales/1/orders", c.next(), "Authorization: Bearer x.y.z", last),
			codes: "401",
		},
		{name: "health", raw: request("GET", "/healthz", last), codes: "200"},
		{name: "a longer path than of metrics", raw: request("GET", "/metric", c.next(), last), codes: "200"},
		{name: "HEAD of health", raw: request("HEAD", "/healthz", last), methods: []string{"HEAD"}, codes: "200"},
		{
			name: "health with preconditions",
			raw: request("GET", "/healthz", "If-Match: \"a\"") + request("GET", "/healthz", "If-None-Match: *") +
				request("GET", "/healthz", "If-Unmodified-Since: Sat, 01 Nov 2025 00:00:00 GMT", last),
			codes: "200 200 200",
		},
		{name: "POST to health", raw: request("POST", "/healthz", last), codes: "405"},
		{
			name: "hidden",
			raw: request("GET", "/admin/v1/sales") + request("GET", "/Metrics") + request("GET", "/debug/pprof/") +
				request("GET", "/admin?x") + request("GET", "/administration") + request("GET", "/%61dmin", last),
			codes: "404 404 404 404 404 404",
		},
		{
			name: "between edge and backend",
			raw:  request("GET", "/.sluice/sales/1/holders") + request("GET", "/.sluice/bad-request", last), codes: "404 404",
		},
		{name: "between edge and backend, in other spellings", raw: request("GET", "/.SLUICE/sales/1/holders") + request("GET", "/.sluice/sales") + request("HEAD", "/.sluice/bad-request") +
			request("POST", "/.sluice/sales/1/holders", "Content-Length: 2") + "{}" + request("GET", "/.sluice/x?y", last), methods: []string{"GET", "GET", "HEAD"}, codes: "404 404 404 404 404"},
		{name: "TRACE", raw: request("TRACE", "/") + request("GET", "/next"), codes: "405"},
		{name: "TRACE of a hidden path", raw: request("TRACE", "/admin") + request("GET", "/next"), codes: "405"},
		{
			name: "TRACE with a body", raw: request("TRACE", "/", "Content-Length: 3") + "abc" + request("GET", "/next"),
			codes: "405",
		},
		{name: "CONNECT", raw: request("CONNECT", "/") + request("GET", "/next"), codes: "405"},
		{name: "other methods", raw: request(
			"OPTIONS", "/v1/sales", c.next(), "Origin: http://a", "Access-Control-Request-Method: POST",
			"Access-Control-Request-Headers: authorization",
		) +
			request("DELETE", "/v1/sales/1", c.next()) + request("BREW", "/", c.next(), last), codes: "200 200 200"},
		{name: "HEAD", raw: request("HEAD", "/v1/sales", c.next(), last), methods: []string{"HEAD"}, codes: "200"},
		{
			name: "HEAD with a line without a colon", raw: request("HEAD", "/v1/sales", c.next(), "Nonsense"),
			methods: []string{"HEAD"}, codes: "400",
		},
		{
			name: "HEAD with 101 lines", raw: request("HEAD", "/v1/sales", strings.Repeat("A: b\r\n", 99)+"A: b"),
			methods: []string{"HEAD"}, codes: "431",
		},
		{
			name: "HEAD with a line that is too long", raw: request("HEAD", "/v1/sales", "A: "+strings.Repeat("b", 9000)),
			methods: []string{"HEAD"}, codes: "431",
		},
		{name: "HEAD of another target", raw: "HEAD * HTTP/1.1\r\nHost: x\r\n\r\n", methods: []string{"HEAD"}, codes: "400"},
		{
			name: "HEAD of a path with an escaped backslash", raw: request("HEAD", "/a%5cb", c.next()),
			methods: []string{"HEAD"}, codes: "400",
		},
		{
			name: "a malformed request after HEAD", raw: request("HEAD", "/v1/sales", c.next()) + request("GET", "/", "Nonsense"),
			methods: []string{"HEAD"}, codes: "200 400",
		},
		{
			name: "HEAD alone", raw: "HEAD\r\n\r\n", codes: "400",
		},
		{
			name: "a longer method", raw: request("HEADS", "/", c.next(), "Nonsense"), codes: "400",
		},
		{name: "nothing", raw: request("GET", "/nothing", c.next(), last), codes: "204"},
		{
			name: "not modified",
			raw: request(
				"GET", "/same", c.next(), `If-None-Match: "a"`, "If-Modified-Since: Sat, 01 Nov 2025 00:00:00 GMT", last,
			),
			codes: "304",
		},
		{
			name: "not modified, and the backend does not report it",
			raw: request(
				"GET", "/headers", c.next(), `If-None-Match: W/"x"`, "If-Modified-Since: Sat, 01 Nov 2025 00:00:00 GMT", last,
			),
			codes: "200",
		},
		{name: "a range", raw: request("GET", "/much", c.next(), "Range: bytes=0-9", last), codes: "200"},
		{name: "not found there", raw: request("GET", "/v1/orders/none", c.next(), last), codes: "404"},
		{name: "limited there", raw: request("GET", "/limited", c.next(), last), codes: "429"},
		{name: "much", raw: request("GET", "/much", c.next(), last), codes: "200"},
		{name: "headers", raw: request("GET", "/headers", c.next(), last), codes: "200"},
		{name: "no type", raw: request("GET", "/untyped", c.next(), last), codes: "200"},
		{
			name: "unusual bytes in a target", raw: request("GET", "/x?q=\"<>[]{}|^`", c.next(), last), codes: "200",
		},
		{name: "names in small letters", raw: "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", codes: "200"},
		{name: "no answer", raw: request("GET", "/broken", c.next(), last), codes: "503", again: true},
		{name: "HTTP/1.0", raw: "GET / HTTP/1.0\r\n" + c.next() + "\r\n\r\n", codes: "200"},
		{name: "HTTP/1.0 with a host", raw: "GET / HTTP/1.0\r\nHost: Shop.Example\r\n" + c.next() + "\r\n\r\n", codes: "200"},
		{
			name:  "HTTP/1.0 that stays",
			raw:   "GET / HTTP/1.0\r\n" + c.next() + "\r\nConnection: Keep-Alive\r\n\r\nGET / HTTP/1.0\r\n" + c.next() + "\r\nConnection: close, keep-alive\r\n\r\n" + request("GET", "/"),
			codes: "200 200",
		},
		{name: "the last Connection counts", raw: request(
			"GET", "/", c.next(), "Connection: close", "Connection: keep-alive",
		) + request(
			"GET", "/", c.next(), "Connection: keep-alive", "Connection: xCLOSE", "Connection: te",
		) +
			request("GET", "/"), codes: "200 200"},
		{name: "an empty host", raw: "GET / HTTP/1.1\r\nHost:\r\nConnection: close\r\n\r\n", codes: "400"},
		{
			name: "chunks where nothing has a body",
			raw:  request("POST", "/healthz", "Transfer-Encoding: chunked") + "0\r\n\r\n" + request("GET", "/"), codes: "400",
		},
		{
			name: "chunks in a request without a body",
			raw:  request("POST", "/admin", "Transfer-Encoding: chunked") + "0\r\n\r\n" + request("GET", "/"), codes: "400",
		},
		{name: "blank lines first", raw: "\r\n\r\n" + request("GET", "/", c.next(), last), codes: "200"},
		{
			name: "stray ends of lines first, and between",
			raw: "\n\r\r\n" + request("GET", "/", c.next()) + "\r\r\n\n" + request(
				"POST", "/", c.next(), "Content-Length: 2",
			) + "{}\r\n\r" + request("GET", "/", c.next(), last),
			codes: "200 200 200",
		},
		{
			name: "more blank lines than a head may have",
			raw:  strings.Repeat("\r\n", 20_000) + request("GET", "/", c.next(), last), codes: "200",
		},
		{
			name: "values of a tab",
			raw:  request("GET", "/", c.next(), "Accept:\t", "Origin: \t ", "Token:\t", "Tracestate:\t", last), codes: "200",
		},
		{
			name: "a token and a tab", raw: request("POST", "/v1/sales/1/orders", c.next(), bearer(t, "b0")+"\t", last),
			codes: "401",
		},
		{
			name: "an idempotency key of a tab",
			raw:  request("POST", "/v1/sales/1/orders", c.next(), bearer(t, "b7"), "Idempotency-Key:\t", last), codes: "202",
		},
		{
			name: "white space at the ends of values",
			raw:  request("GET", "/", c.next()+"  ", "Accept:   a/b  ", "Accept-Language: \tde\t", last+" "), codes: "200",
		},
		{
			name: "an empty idempotency key",
			raw:  request("POST", "/v1/sales/1/orders", c.next(), bearer(t, "b1"), "Idempotency-Key:", last), codes: "202",
		},
		{
			name: "an idempotency key of white space",
			raw:  request("POST", "/v1/sales/1/orders", c.next(), bearer(t, "b2"), "Idempotency-Key:   ", last), codes: "202",
		},
		{
			name: "two idempotency keys",
			raw: request(
				"POST", "/v1/sales/1/orders", c.next(), bearer(t, "b3"), "Idempotency-Key: a", "idempotency-key: a", last,
			),
			codes: "400",
		},
		{
			name:  "two empty idempotency keys",
			raw:   request("POST", "/v1/sales/1/orders", c.next(), bearer(t, "b4"), "Idempotency-Key:", "Idempotency-Key:", last),
			codes: "400",
		},
		{
			name: "a verified token, and another in the other header",
			raw:  request("POST", "/v1/sales/1/orders", c.next(), bearer(t, "b8"), "Token: a.b.c", last), codes: "202",
		},
		{name: "a token that nothing verifies", raw: request("GET", "/", c.next(), "Token: a", last), codes: "200"},
		{name: "two tokens", raw: request("GET", "/", c.next(), "Token: a", "TOKEN: a", last), codes: "400"},
		{
			name: "two tokens, and an escape in the path of a page",
			raw:  request("GET", "/s/%61", c.next(), "Token: a", "TOKEN: a", last), codes: "400",
		},
		{
			name: "two tokens, and an escape in the path of an asset",
			raw:  request("GET", "/assets/%61", c.next(), "Token: a", "TOKEN: a", last), codes: "400",
		},
		{name: "an escaped slash in the path of an asset", raw: request("GET", "/assets%2fa", c.next(), last), codes: "400"},
		{name: "an escaped slash in the path of a page", raw: request("GET", "/s/a%2fb", c.next(), last), codes: "400"},
		{
			name: "two Authorizations", raw: request("GET", "/", c.next(), bearer(t, "b5"), bearer(t, "b5"), last), codes: "400",
		},
		{
			name: "two Authorizations, one empty", raw: request("GET", "/", c.next(), "Authorization:", bearer(t, "b6"), last),
			codes: "400",
		},
		{name: "all headers that a client may send", raw: request("GET", "/", c.next(), bearer(t, "c1"), "Accept: a", "Accept: b", "Accept-Encoding: gzip", "Accept-Language: de", "If-None-Match: x",
			"If-Modified-Since: y", "Range: z", "Last-Event-ID: 7", "Content-Type: a/b", "Origin: http://a", "User-Agent: u",
			"Tracestate: a=b",
			"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", last), codes: "200"},
		{name: "headers that a client may not send", raw: request("GET", "/", c.next(), "X-Request-Id: 0123456789abcdef0123456789abcdef", "X-Real-IP: 1.2.3.4", "X-Forwarded-Host: evil", "X-Forwarded-Proto: https", "X-Forwarded-Port: 1",
			"Forwarded: for=1.2.3.4", "Sluice-Sale: 1", "sluice-x: 1", "Sluice_Sale: 1", "Sluice.Sale: 1", "Cookie: a=b",
			"Via: x", "Te: trailers", "Trailer: x", "Upgrade: h2c", "HTTP2-Settings: x", "Keep-Alive: x",
			"Proxy-Connection: x", "Proxy-Authorization: x", "X-Original-URL: /admin", "X-Rewrite-URL: /admin",
			"X-HTTP-Method-Override: DELETE", "X_Forwarded_For: 1.2.3.4", "Expect: 100-continue",
			"tracestate: a=b", "traceparent: 00-00000000000000000000000000000000-00f067aa0ba902b7-01", last)},
		{
			name: "a trailer that is not allowed",
			raw:  request("GET", "/", c.next(), bearer(t, "c3"), "Trailer: Host", last), codes: "200",
		},
		{
			name: "Connection names headers of the edge",
			raw: request("POST", "/", c.next(), bearer(t, "c2"), "Connection: close, X-Real-IP, X-Forwarded-For, "+
				"X-Request-Id, Host, Authorization, Content-Length", "Content-Length: 2") + "{}",
			codes: "200",
		},
		{
			name: "empty headers", raw: request("GET", "/", c.next(), "Accept:", "Origin: ", "Token:", "User-Agent:", last),
			codes: "200",
		},
	} {
		compare(t, both, x)
	}
	for _, status := range strings.Fields("400 401 404 409 413 422 429 500 502 503 504") {
		compare(t, both, exchange{
			name: "status " + status + " there", raw: request("GET", "/status?"+status, c.next(), last), codes: status,
		})
	}
}

// The edges send 100 Continue to a client that waits for it. A client of HTTP/1.0 does not understand it.
func TestEdgesSend100Continue(t *testing.T) {
	for _, e := range startBoth(t, options{policy: limitless}, play) {
		for raw, want := range map[string]int{
			post("Expect: 100-continue", "Content-Length: 2", "Connection: close") + "{}":             1,
			post("expect: 100-Continue", "Content-Length: 2", "Connection: close") + "{}":             1,
			post("Expect: another", "Content-Length: 2", "Connection: close") + "{}":                  0,
			"POST /v1/sales/1/orders HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}": 0,
		} {
			if h := e.send(t, raw); h.interim != want || fmt.Sprint(h.codes) != "[202]" {
				t.Errorf("%q: %s sends 100 Continue %d times, want %d, and answers %v", raw, e.name, h.interim, want, h.codes)
			}
			if got := e.backend.take(); len(got) != 1 || got[0].body != "{}" {
				t.Errorf("%q: the backend of %s got %v", raw, e.name, got)
			}
		}
	}
}

// Internal paths between edge and backend are hidden from clients in every form, and malformed requests to them are
// rejected as anywhere.
func TestEdgesHideInternalPaths(t *testing.T) {
	both := startBoth(t, options{policy: limitless}, play)
	for _, path := range []string{
		"/.sluice", "/.sluice/", "/.sluice/sales", "/.sluice/sales/", "/.sluice/sales/1/holders", "/.sluice/bad-request",
		"/.sluice/header-too-large", "/.Sluice/sales/1/holders",
	} {
		const last = "Connection: close"
		for name, x := range map[string]exchange{
			"plainly":                {raw: request("GET", path, last), codes: "404"},
			"a letter in an escape":  {raw: request("GET", strings.Replace(path, "s", "%73", 1), last), codes: "404"},
			"the dot in an escape":   {raw: request("GET", strings.Replace(path, ".", "%2E", 1), last), codes: "400"},
			"the slash in an escape": {raw: request("GET", "/.sluice%2fsales", last), codes: "400"},
			"a fragment":             {raw: request("GET", path+"#x", last), codes: "400"},
			"two tokens":             {raw: request("GET", path, "Token: a", "Token: b", last), codes: "400"},
			"a bare LF":              {raw: "GET " + path + " HTTP/1.1\r\nHost: x\nA: b\r\n\r\n" + smuggled, codes: "400"},
			"101 lines": {
				raw: request(
					"GET", path, append(strings.Split(strings.TrimSuffix(strings.Repeat("A: b\n", 101), "\n"), "\n"), last)...,
				),
				codes: "431",
			},
			"chunks": {
				raw: request("POST", path, "Transfer-Encoding: chunked") + "0\r\n\r\n" + smuggled, codes: "400",
			},
			"a body": {raw: request("POST", path, "Content-Length: 2", last) + "{}", codes: "404"},
			"a body that is large": {
				raw: request("POST", path, "Content-Length: 16385") + strings.Repeat("a", 16385), codes: "413",
			},
			"a body of HEAD that is large": {
				raw:     request("HEAD", path, "Content-Length: 16385") + strings.Repeat("a", 16385),
				methods: []string{"HEAD"}, codes: "413",
			},
			"a body that is not one": {
				raw: request("POST", path, "Content-Length: 2", "Transfer-Encoding: chunked") + "{}", codes: "400",
			},
		} {
			x.name = path + ", " + name
			compare(t, both, x)
		}
	}
	for path, codes := range map[string]string{
		"/.sluice?x": "404", "/.sluice/x?y": "404", "/.sl%75ice/sales/drop/holders": "404", "/%2E%73luice/x": "400",
		"//.sluice/x": "400", "/./.sluice/x": "400", "/x/../.sluice/x": "400", "/x/%2e%2e/.sluice/x": "400",
		"/.sluice/sales/../x": "400", `/\.sluice/x`: "400", "/.sluice;x/sales/drop/holders/../x": "400",
	} {
		compare(t, both, exchange{name: path, raw: request("GET", path, "Connection: close"), codes: codes})
	}
	for _, e := range both {
		if got := e.backend.take(); len(got) > 0 {
			t.Errorf("the backend of %s got %s", e.name, got[0])
		}
	}
}

// Each header that one of the two passes on, the other does too: a line in proxy.conf needs one in headers.go.
func TestEdgesForwardTheSameHeaders(t *testing.T) {
	names := map[string]bool{}
	for path, list := range map[string]string{
		"../../nginx/snippets/proxy.conf": `(?m)^proxy_set_header ([A-Za-z-]+) `,
		"../../gateway/proxy/headers.go":  `case ((?:"[a-z-]+",?\s*)+):\n\t\tif len\(h\.value\(\)\) > 0`,
	} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, m := range regexp.MustCompile(list).FindAllStringSubmatch(string(text), -1) {
			for _, name := range regexp.MustCompile(`[A-Za-z-]+`).FindAllString(m[1], -1) {
				found[strings.ToLower(name)] = true
			}
		}
		if len(found) < 10 {
			t.Fatalf("%s names %d headers", path, len(found))
		}
		maps.Copy(names, found)
	}
	lines := []string{
		"GET / HTTP/1.1",
		"Host: x",
		"Connection: close",
		"Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	}
	for _, known := range []string{"host", "connection", "traceparent", "authorization"} {
		delete(names, known)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		lines = append(lines, name+": a "+name)
	}
	both := startBoth(t, options{policy: limitless}, play)
	compare(t, both, exchange{name: "all headers", raw: strings.Join(lines, "\r\n") + "\r\n\r\n", codes: "200"})

	// Both edges handle repeated lines of a header alike. Neither reads an underscore as a hyphen, as nginx would.
	const parent, other = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"
	many := strings.Split(strings.Repeat("X-Any: x\n", 11)+"X-Any: x", "\n")
	for _, name := range append(
		slices.Sorted(maps.Keys(names)), "traceparent", "authorization", "content-length", "transfer-encoding",
	) {
		a, b := "a", "b"
		if name == "traceparent" {
			a, b = parent, other
		}
		alias := strings.ReplaceAll(name, "-", "_")
		for _, lines := range [][]string{
			{name + ": " + a, strings.ToUpper(name) + ": " + b},
			{name + ": " + a, name + ": " + b, name + ": " + a},
			{name + ":", name + ": " + b},
			{alias + ": " + a},
			{alias + ": " + a, name + ": " + b},
			{name + ": " + a, strings.ToUpper(alias) + ": " + b, alias + ": " + a},
			append([]string{name + ": " + a, alias + ": " + a, name + ": " + b}, many...),
		} {
			if name != "traceparent" {
				lines = append(lines, "traceparent: "+parent)
			}
			compare(t, both,
				exchange{name: fmt.Sprintf("%.3q", lines), raw: request("GET", "/", append(lines, "Connection: close")...)})
		}
	}
}

func TestEdgesBoundConcurrentRequestsAlike(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 8)
	both := startBoth(t, options{policy: shop, perClient: 2}, func(w http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free) // a failed test must leave no request behind
	held := make(chan received, 4)
	for _, e := range both {
		for _, path := range []string{"/v1/orders/1", "/slow"} {
			go func() {
				held <- e.send(t, request("GET", path, "X-Forwarded-For: 192.0.2.1", "Connection: close"))
			}()
		}
		<-arrived
		<-arrived
	}
	for _, e := range both {
		e.backend.take()
	}
	compare(
		t,
		both,
		exchange{
			name:  "one too many",
			raw:   request("GET", "/", "X-Forwarded-For: 192.0.2.1", "Connection: close"),
			codes: "429",
		},
	)
	compare(t, both, exchange{
		name:  "one too many of a browser",
		raw:   request("GET", "/", "X-Forwarded-For: 192.0.2.1", "Accept: text/html,*/*", "Connection: close"),
		codes: "429",
	})
	// A client that is also over a limit gets the answer of the limit, not of the concurrency.
	compare(
		t,
		both,
		exchange{
			name:  "one too many, over a limit",
			raw:   request("GET", "/slow", "X-Forwarded-For: 192.0.2.1", "Connection: close"),
			codes: "429",
		},
	)
	for _, e := range both {
		h := e.send(t, request("GET", "/slow", "X-Forwarded-For: 192.0.2.1", "Connection: close"))
		if len(h.answers) != 1 || !strings.Contains(h.answers[0], `"violated-policies":["slow"]`) {
			t.Errorf("over a limit and with too many requests in progress, the client gets from %s %q", e.name, h.answers)
		}
	}
	free()
	for range 4 {
		<-held
	}
}

// No backend gets If-Match and If-Unmodified-Since, and nginx does not evaluate them for a page in its cache. It does
// not evaluate "If-None-Match: *" either, because backends do not.
func TestPreconditionsOfPagesHaveNoEffect(t *testing.T) {
	both := startBoth(t, options{policy: limitless}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=1000")
		w.Header().Set("ETag", `"a"`)
		w.Header().Set("Last-Modified", "Sat, 01 Nov 2025 00:00:00 GMT")
	})
	for _, e := range both {
		for _, path := range []string{"/s/shoe", "/assets/a.js"} {
			for _, line := range []string{
				"Accept: a/b", `If-Match: "b"`, "If-Match: 0", "If-Unmodified-Since: Fri, 31 Oct 2025 00:00:00 GMT",
				"If-None-Match: *", "If-Match:", "If-Unmodified-Since: ",
			} {
				if got := e.send(t, request("GET", path, line, "Connection: close")); fmt.Sprint(got.codes) != "[200]" {
					t.Errorf("%s with %s: %s answers %v, want 200", path, line, e.name, got.codes)
				}
			}
		}
	}
}

// A path with escapes is judged by a backend, also when nginx has the page of the decoded path in its cache.
func TestEdgesForwardEscapedPathsOfPages(t *testing.T) {
	both := startBoth(t, options{policy: limitless}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=1000")
		if r.RequestURI != "/s/shoe" {
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNotFound)
		}
	})
	for _, e := range both { // nginx stores the page
		e.send(t, request("GET", "/s/shoe", "Connection: close"))
		e.backend.take()
	}
	for range 2 {
		for _, target := range []string{"/s/sh%6fe", "/%73/shoe", "/s/%73hoe?a=b"} {
			compare(t, both, exchange{
				name: target, raw: request("GET", target, "Accept-Language: en", "Connection: close"), codes: "404",
			})
		}
	}
}

// The nginx edge answers a request for a part of a page in its cache with the whole page, as the gateway does with a
// backend that ignores Range: its own responses to such requests are not those of a backend.
func TestRangesOfPagesHaveNoEffect(t *testing.T) {
	const page = "the whole page"
	both := startBoth(t, options{policy: limitless}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=1000")
		w.Header().Set("Accept-Ranges", "bytes")
		w.Header().Set("ETag", `"a"`)
		_, _ = io.WriteString(w, page)
	})
	for _, e := range both {
		for _, path := range []string{"/s/shoe", "/assets/a.js", "/s/sh%6fe"} {
			for _, wanted := range []string{"bytes=0-2", "bytes=100-", "bytes=100-200,300-", "bytes=0-1,4-5", "bytes=5-2"} {
				for _, line := range []string{"Accept: a/b", `If-Range: "a"`, `If-Range: "b"`} {
					got := e.send(t, request("GET", path, line, "Range: "+wanted, "Connection: close"))
					if fmt.Sprint(got.codes) != "[200]" || !strings.HasSuffix(got.answers[0], "\n"+page) {
						t.Errorf("%s, %s of %s: %s answers %q, want the whole page", line, wanted, path, e.name, got.answers)
					}
				}
			}
		}
	}
}
