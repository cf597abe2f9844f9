package edges

import (
	"fmt"
	"strings"
	"testing"

	"sluice/test/edgetest"
)

const getHead = "GET / HTTP/1.1\r\nHost: x\r\n"

func post(lines ...string) string {
	return "POST /v1/sales/1/orders HTTP/1.1\r\nHost: x\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// malformed are requests that both edges reject in the same way, besides edgetest.HostileHeads: hosts, paths and bodies
// that readers disagree about, and what is too long.
var malformed = []struct {
	name, raw string
	code      int
}{
	{"a host of garbage in brackets", "GET / HTTP/1.1\r\nHost: [:1]\r\n\r\n", 400},
	{"a host of IPv4 in brackets", "GET / HTTP/1.1\r\nHost: [192.0.2.1]\r\n\r\n", 400},
	{"a host of nine groups in brackets", "GET / HTTP/1.1\r\nHost: [1:2:3:4:5:6:7:8:9]\r\n\r\n", 400},
	{"a host of IPv4 with a zero too many in brackets", "GET / HTTP/1.1\r\nHost: [::ffff:192.0.2.01]\r\n\r\n", 400},
	{"chunk size: none", post("Transfer-Encoding: chunked") + "\r\n\r\n", 400},
	{"chunk size: no number", post("Transfer-Encoding: chunked") + "zz\r\n\r\n", 400},
	{"chunk size: minus", post("Transfer-Encoding: chunked") + "-1\r\n\r\n", 400},
	{"chunk size: overflow", post("Transfer-Encoding: chunked") + "fffffffffffffffff\r\nabc\r\n0\r\n\r\n", 400},
	{"chunk size: 2^64 + 3", post("Transfer-Encoding: chunked") + "10000000000000003\r\nabc\r\n0\r\n\r\n", 400},
	{"a chunk that is longer than its size", post("Transfer-Encoding: chunked") + "3\r\nabcd\r\n0\r\n\r\n", 400},
	{
		"a dot segment, and chunk size: no number",
		"POST /a/../b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", 400,
	},
	{
		"a host that is none, and chunk size: no number",
		"POST / HTTP/1.1\r\nHost: x@y\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", 400,
	},
	{"escaped slash", "GET /v1%2fsales HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"escaped dot", "GET /%2e%2e/x HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"escaped NUL", "GET /a%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"broken escape", "GET /a%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"half an escape", "GET /a%2 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"two slashes first", "GET //evil/x HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a backslash first", "GET /\\evil HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"escaped line end", "GET /%0d%0aX:%20y HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a dot and an escaped dot", "GET /.%2e/admin HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a dot segment", "GET /./admin HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"dot segments", "GET /a/../b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a dot segment at the end", "GET /a/. HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"an empty segment", "GET /a//b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a backslash", "GET /a\\b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a long header line", getHead + "A: " + strings.Repeat("a", 9000) + "\r\n\r\n", 431},
	{"a header line of 8193 bytes", getHead + "A: " + strings.Repeat("a", 8193-5) + "\r\n\r\n", 431},
	{"a long request line", "GET /" + strings.Repeat("a", 9000) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431},
	{"101 lines", "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 100) + "\r\n", 431},
	{"a head of 16385 bytes", headOf(16385), 431},
	{"a head of a megabyte", headOf(1 << 20), 431},
	{"a body of 16385 bytes", post("Content-Length: 16385") + strings.Repeat("a", 16385), 413},
	{"a body of a gigabyte to be", post("Content-Length: 1073741824") + "a", 413},
	{"a chunk of 2 GiB to be", post("Transfer-Encoding: chunked") + "7fffffff\r\na", 413},
	{"chunks of 16385 bytes in all", post("Transfer-Encoding: chunked") + strings.Repeat("1\r\na\r\n", 16385), 413},
	{
		"chunks of 16385 bytes",
		post("Transfer-Encoding: chunked") + "4001\r\n" + strings.Repeat("a", 16385) + "\r\n0\r\n\r\n",
		413,
	},
}

func headOf(size int) string {
	head := getHead + "Connection: close\r\nA: " + strings.Repeat("a", 8000) + "\r\nB: " + strings.Repeat("b",
		8000) + "\r\nC: "
	return head + strings.Repeat("c", size-len(head)-4) + "\r\n\r\n"
}

const limitless = `return { rules = {} }`

// A request follows each: an edge that continued reading would answer it or forward it.
const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"

// Both edges answer once, close the connection, and let nothing of the request through, also behind another request.
func TestEdgesRejectAmbiguousRequests(t *testing.T) {
	both := startBoth(t, options{policy: limitless}, play)
	for _, c := range malformed {
		if got := compare(t, both, exchange{name: c.name, raw: c.raw + smuggled, codes: fmt.Sprint(c.code)}); got != "" {
			t.Errorf("%s: the backends got %s", c.name, got)
		}
	}
	for name, raw := range edgetest.HostileHeads() {
		if got := compare(t, both, exchange{name: name, raw: raw + smuggled, codes: "400"}); got != "" {
			t.Errorf("%s: the backends got %s", name, got)
		}
		got := compare(t, both, exchange{
			name: "behind a body: " + name, raw: post("Content-Length: 2") + "{}" + raw + smuggled, codes: "202 400",
		})
		if strings.Count(got, " for x\n") != 1 || !strings.HasSuffix(got, "\n\"{}\"") {
			t.Errorf("behind a body: %s: the backends got %s, want the first request", name, got)
		}
	}
}

func TestEdgesAcceptRequestsAtTheLimits(t *testing.T) {
	both := startBoth(t, options{policy: limitless}, play)
	for _, x := range []exchange{
		{
			name: "a header line of 8192 bytes",
			raw:  getHead + "Connection: close\r\nA: " + strings.Repeat("a", 8192-5) + "\r\n\r\n", codes: "200",
		},
		{name: "a head of 16384 bytes", raw: headOf(16384), codes: "200"},
		{
			name: "a length of 18 digits", raw: post("Connection: close", "Content-Length: 000000000000000003") + "abc",
			codes: "202",
		},
		{name: "100 lines", raw: getHead + "Connection: close\r\n" + strings.Repeat("A: b\r\n", 98) + "\r\n", codes: "200"},
		{
			name: "a body of 16384 bytes", raw: post("Connection: close", "Content-Length: 16384") + strings.Repeat("a", 16384),
			codes: "202",
		},
		{
			name: "chunks of 16384 bytes",
			raw:  post("Transfer-Encoding: chunked") + "4000\r\n" + strings.Repeat("a", 16384) + "\r\n0\r\n\r\n", codes: "202",
		},
	} {
		compare(t, both, x)
	}
}

// Differences in reading the frame of a chunk, see docs/trust.md, do no harm: both edges read nothing after the end of
// the body that they have found, and the backend gets at most one request.
func TestEdgesReadNothingAfterAChunkedBody(t *testing.T) {
	for _, e := range startBoth(t, options{policy: limitless}, play) {
		for _, chunks := range []string{
			"3\r\nabc\r\n0\r\n\r\n",
			"3;x\nabc\r\n0\r\n\r\n",
			"3;x=\"\n\"\r\nabc\r\n0\r\n\r\n",
			"2;\nxx\r\n2d\r\n0\r\n\r\n",
			"3\nabc\n0\n\n",
			"3\rabc\r0\r\r",
			"3 \r\nabc\r\n0\r\n\r\n",
			"\t3\r\nabc\r\n0\r\n\r\n",
			"0x3\r\nabc\r\n0\r\n\r\n",
			"03\r\nabc\r\n00\r\n\r\n",
			"3\r\nabc0\r\n\r\n",
			"3\r\nabcXX0\r\n\r\n",
			"0\r\nContent-Length: 9\r\n\r\n",
			"0\r\nA: b\nC: d\r\n\r\n",
			"3 ;a=b\r\nabc\r\n0\r\n\r\n",
			strings.Repeat("0", 40) + "3\r\nabc\r\n0\r\n\r\n",
			"3\r\nabc\r\n0\r\nXX\r\n\r\n",
			"3\r\nabc\r\n0\r\n\x00\x01garbage",
			"3\r\nabc\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
			"3\r\nabc\r\n0\r\nHost: y\r\n\r\n",
			"3\r\nabc\r\n0\r\nAuthorization: y\r\n\r\n",
			"0\n\n",
			"0\r\n",
		} {
			h := e.send(t, post("Transfer-Encoding: chunked")+chunks+smuggled+smuggled)
			got := e.backend.take()
			if len(h.codes) > 1 || !h.closed {
				t.Errorf("%q: %s answered %v, connection closed: %v; want at most one answer, and the end", chunks, e.name,
					h.codes, h.closed)
			}
			if len(got) > 1 || len(got) == 1 && got[0].target != "/v1/sales/1/orders" {
				t.Errorf("%q: the backend of %s got %d requests, the last %s", chunks, e.name, len(got), got[len(got)-1])
			}
			if len(h.codes) == 1 && h.codes[0] != 202 && h.codes[0] != 400 {
				t.Errorf("%q: %s answered %d", chunks, e.name, h.codes[0])
			}
		}
	}
}
