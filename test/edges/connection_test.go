package edges

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// The edges handle connections with several random requests alike, most of which are valid: methods, targets, headers
// and bodies of all kinds, under limits, with tokens, through proxies, and from pages of other sites.
// SLUICE_CONNECTIONS is the number of connections, SLUICE_CHANCE_SEED the seed that repeats a run.
func TestEdgesAgreeOnRandomConnections(t *testing.T) {
	tries, seed := number(t, "SLUICE_CONNECTIONS", 1000), number(t, "SLUICE_CHANCE_SEED", rand.Uint64())
	t.Logf("SLUICE_CHANCE_SEED=%d", seed)
	const policy = `return { trusted_proxies = { "127.0.0.1", "10.0.0.0/8" }, repeat_refusals = false, rules = {
		{ name = "ip", key = "ip", rate = "1r/h", burst = 50 },
		{ name = "once", key = "ip", rate = "1r/h", match = { path = "/v1/once" } },
		{ name = "get", key = "ip", rate = "2r/h", match = { method = "GET", path = "/v1/sales/*" } },
		{ name = "trial", key = "ip", rate = "1r/h", mode = "shadow" },
		{ name = "token", key = "token", rate = "1r/h", match = { method = "POST", path = "/v1/sales/*/orders" } },
	} }`
	both := startBoth(t, options{policy: policy, cors: []string{"https://shop.example", "http://localhost:3000"}}, play)
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // a test's chance
	for n := range tries {
		g.client = fmt.Sprintf("198.51.%d.%d", n/250%250, n%250)
		g.tokens = []string{bearer(t, fmt.Sprint("ann ", n)), bearer(t, fmt.Sprint("Zoë ", n))}
		raw, methods := g.connection()
		compare(t, both, exchange{name: fmt.Sprintf("%q", raw), raw: raw, methods: methods, again: true})
	}
}

// generator makes random requests.
type generator struct {
	*rand.Rand
	client string   // address
	tokens []string // header lines
}

var words = strings.Fields

func (g *generator) pick(of ...string) string { return of[g.IntN(len(of))] }

// join returns up to n of these texts, one behind the other.
func (g *generator) join(n int, of ...string) string {
	var b strings.Builder
	for range g.IntN(n + 1) {
		b.WriteString(g.pick(of...))
	}
	return b.String()
}

// connection returns the bytes of a connection, and the methods of its requests. The last one ends the connection.
func (g *generator) connection() (raw string, methods []string) {
	for last := g.IntN(3) == 0; ; last = g.IntN(2) == 0 {
		method := g.pick(words("GET GET GET POST POST HEAD OPTIONS PUT DELETE PATCH X-Y_Z GE HEADS")...)
		raw, methods = raw+g.request(method, last), append(methods, method)
		if last {
			return raw, methods
		}
	}
}

func (g *generator) request(method string, last bool) string {
	version := g.pick("1", "1", "1", "1", "0")
	lines := []string{
		method + " " + g.target() + " HTTP/1." + version, "Host: " + g.pick("x", "Shop.Example:80", "[::1]", "a_b"),
		"X-Forwarded-For: " + g.client,
	}
	lines = append(lines, g.headers()...)
	if method == "OPTIONS" && g.IntN(2) == 0 {
		lines = append(lines, "Access-Control-Request-Method: PUT", "Origin: "+g.pick("https://shop.example", "http://x"))
	}
	body := ""
	switch kind := g.IntN(6); {
	case kind == 0:
		body = strings.Repeat("b", g.IntN(20))
		lines = append(lines, fmt.Sprintf("Content-Length: %d", len(body)))
	case kind == 1 && version == "1" && last:
		lines, body = append(lines, g.pick("Transfer-Encoding: chunked", "transfer-encoding:  CHUNKED ")), g.chunks()
	}
	if last {
		lines = append(lines, "Connection: close")
	} else if version == "0" {
		lines = append(lines, "Connection: keep-alive")
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

func (g *generator) chunks() string {
	var b strings.Builder
	for range g.IntN(3) {
		n := 1 + g.IntN(20)
		fmt.Fprintf(&b, g.pick("%x", "%X", "0%x ", "%x;a=b")+"\r\n%s\r\n", n, strings.Repeat("c", n))
	}
	return b.String() + g.pick("0", "00", "0\r\nA: b") + "\r\n\r\n"
}

// target returns a target. It is none of a page, because only nginx caches them.
func (g *generator) target() string {
	if g.IntN(3) == 0 {
		return g.pick(words(`/ /v1/sales /v1/sales/1 /v1/once /v1/sales/1/orders /v1/sales/2/orders /v1/sales/1/orders/
			/healthz /nothing /same /limited /headers /v1/orders/none /v1/orders/1 /status?409 /status?200 /admin /metrics
			/.sluice/x /debug /v1/ONCE/`)...)
	}
	path := ""
	for range 1 + g.IntN(4) {
		path += "/" + g.join(3, words("v1 sales orders 1 a Z %20 %41 %c3%a9 é . .. - ~ ; : @ = + & %3f %3F %23 %25 * %2e "+
			"%2F %zz % | \" < ^ ` { healthz admin \\ %5c %7f %00 \xff %ff %80 ' ! $ ( ,")...)
	}
	if g.IntN(3) == 0 {
		path += "?" + g.join(3, words("a = & / .. % %zz ? %00 %2e lang=zh \xff // \\ wait=1s")...)
	}
	return path
}

// headers returns up to five header lines.
func (g *generator) headers() (lines []string) {
	for range g.IntN(6) {
		lines = append(lines, g.header())
	}
	return lines
}

func (g *generator) header() string {
	switch g.IntN(10) {
	case 0:
		return g.pick(g.tokens...)
	case 1:
		_, token, _ := strings.Cut(g.pick(g.tokens...), "Bearer ")
		return g.pick("Token: ", "token:", "TOKEN:  ") + token
	case 2:
		return g.pick("Access-Control-Request-Method: POST", "Access-Control-Request-Method:", "Origin:", "Origin: null",
			"Origin: https://shop.example", "origin:HTTPS://SHOP.EXAMPLE ", "Origin: http://localhost:3000",
			"Origin: https://evil.example", "Origin: https://shop.example\t", "Access-Control-Request-Headers: a", "Vary: a")
	case 3:
		return "X-Forwarded-For: " + g.pick("", "x, ", "192.0.2.9,") + g.pick(words(`10.0.0.1 192.0.2.1 192.0.2.1:80
			192.0.2.01 1.2.3 [2001:db8::1] [::1]:80 ::ffff:192.0.2.1 ::ffff:10.0.0.1 fe80::1%eth0 2001:DB8:0:0::A ::
			1::2::3 unknown 0x7f.1 256.1.1.1 2001:db8::192.0.2.1 ::FFFF:C000:0201 _`)...) +
			g.pick("", "", ", 10.0.0.2", " ,10.0.0.2", ",")
	}
	return g.pick(words(`Accept Accept accept-language Accept-Encoding User-Agent X-Any X_Any Accept_Language Cookie Range
		Traceparent Tracestate Content-Type Token Idempotency-Key X-Request-Id If-None-Match If-Modified-Since If-Range
		If-Match If-Unmodified-Since Content-Range Authorization Upgrade TE Trailer Via Keep-Alive Referer Expect X-Real-IP
		Forwarded Last-Event-ID Webhook-Id Date Max-Forwards Content-Encoding Sluice-Sale X-Accel-Redirect HTTP2-Settings
		Pragma Cache-Control X-Http-Method-Override Content-Language Content-Disposition Server Depth Destination`)...) +
		":" + g.pick(" ", "", "  ") + g.pick("a", "a b", `"c"`, "", "d,e", "é", "a:b", "text/html", "text/html;q=1", "gzip",
		"192.0.2.1", "2001:db8::1", "Bearer a.b.c", "bearer  x", "Basic x", "bytes=0-1", "*", "chunked", "100-continue",
		`"`, `\`, "\xff", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Sat, 01 Nov 2025 00:00:00 GMT",
		strings.Repeat("v", 1+g.IntN(300)))
}
