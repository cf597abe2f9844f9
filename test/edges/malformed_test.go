package edges

import (
	"fmt"
	"strings"
	"testing"
)

const getHead = "GET / HTTP/1.1\r\nHost: x\r\n"

func post(lines ...string) string {
	return "POST /v1/sales/1/orders HTTP/1.1\r\nHost: x\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// malformed are heads and bodies that parsers interpret differently, or that are invalid. Both edges reject each in the
// same way, close the connection, and forward nothing of it.
var malformed = []struct {
	name, raw string
	code      int
}{
	{"CL.TE", post("Content-Length: 6", "Transfer-Encoding: chunked") + "0\r\n\r\nG", 400},
	{"TE.CL", post("Transfer-Encoding: chunked", "Content-Length: 4") + "5c\r\nGPOST", 400},
	{"TE.TE: two", post("Transfer-Encoding: chunked", "Transfer-Encoding: identity") + "0\r\n\r\n", 400},
	{"TE.TE: the same twice", post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked") + "0\r\n\r\n", 400},
	{"TE.TE: cow", post("Transfer-Encoding: chunked", "Transfer-encoding: cow") + "0\r\n\r\n", 400},
	{"TE: xchunked", post("Transfer-Encoding: xchunked") + "0\r\n\r\n", 400},
	{"TE: a list", post("Transfer-Encoding: gzip, chunked") + "0\r\n\r\n", 400},
	{"TE: a list of one and nothing", post("Transfer-Encoding: chunked,") + "0\r\n\r\n", 400},
	{"TE: identity", post("Transfer-Encoding: identity", "Content-Length: 3") + "abc", 400},
	{"TE: quoted", post(`Transfer-Encoding: "chunked"`) + "0\r\n\r\n", 400},
	{"TE: a tab before", post("Transfer-Encoding:\tchunked") + "0\r\n\r\n", 400},
	{"TE: a vertical tab before", post("Transfer-Encoding: \x0bchunked") + "0\r\n\r\n", 400},
	{"TE: a tab within", post("Transfer-Encoding: chun\tked") + "0\r\n\r\n", 400},
	{"TE: a space before the colon", post("Transfer-Encoding : chunked") + "0\r\n\r\n", 400},
	{"TE: folded", post("Transfer-Encoding:\r\n chunked") + "0\r\n\r\n", 400},
	{"TE: empty", post("Transfer-Encoding:") + "0\r\n\r\n", 400},
	{"TE in HTTP/1.0", "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
	{"CL: two", post("Content-Length: 3", "Content-Length: 4") + "abcd", 400},
	{"CL: the same twice", post("Content-Length: 3", "Content-Length: 3") + "abc", 400},
	{"CL: a list", post("Content-Length: 3, 3") + "abc", 400},
	{"CL: plus", post("Content-Length: +3") + "abc", 400},
	{"CL: minus", post("Content-Length: -3") + "abc", 400},
	{"CL: a space within", post("Content-Length: 1 0") + "abcdefghij", 400},
	{"CL: a tab before", post("Content-Length:\t3") + "abc", 400},
	{"CL: hexadecimal", post("Content-Length: 0x3") + "abc", 400},
	{"CL: a fraction", post("Content-Length: 3.0") + "abc", 400},
	{"CL: empty", post("Content-Length:"), 400},
	{"CL: beyond 64 bits", post("Content-Length: 18446744073709551619") + "abc", 400},
	{"CL: 19 digits", post("Content-Length: 0000000000000000003") + "abc", 400},
	{"CL: 22 digits", post("Content-Length: 0000000000000000000003") + "abc", 400},
	{"CL: 100 digits", post("Content-Length: "+strings.Repeat("0", 99)+"3") + "abc", 400},
	{"CL: a space before the colon", post("Content-Length : 3") + "abc", 400},
	{"bare LF everywhere", "GET / HTTP/1.1\nHost: x\n\n", 400},
	{"bare LF everywhere, a blank line after", "GET / HTTP/1.1\nHost: x\n\n\r\n", 400},
	{"bare LF after the request line", "GET / HTTP/1.1\nHost: x\r\n\r\n", 400},
	{"bare LF after the first line", "GET / HTTP/1.1\r\nHost: x\nAccept: a\r\n\r\n", 400},
	{"bare LF after the last line", getHead + "Accept: a\n\r\n", 400},
	{"bare LF at the end", getHead + "Accept: a\r\n\n", 400},
	{"bare LF, twice at the end", getHead + "Accept: a\n\n", 400},
	{"bare LF after two spaces", getHead + "Accept: a  \nOrigin: b\r\n\r\n", 400},
	{"bare LF at the end, made up for by a space", getHead + "Accept: a \r\n\n", 400},
	{"bare LF at the end, made up for by a space behind nothing", getHead + "Accept:  \r\n\n", 400},
	{"bare LF hides a header", getHead + "X: a\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
	{"bare LF without headers", "GET / HTTP/1.0\n\n", 400},
	{"bare LF in HTTP/1.0", "GET / HTTP/1.0\r\n\n", 400},
	{"bare CR", getHead + "X: a\rTransfer-Encoding: chunked\r\n\r\n", 400},
	{"bare CR in a name", getHead + "X\rY: a\r\n\r\n", 400},
	{"two CRs after the request line", "GET / HTTP/1.1\r\r\nHost: x\r\n\r\n", 400},
	{"folded", getHead + "Accept: a\r\n b\r\n\r\n", 400},
	{"folded with a tab", getHead + "Accept: a\r\n\tb\r\n\r\n", 400},
	{"folded first", "GET / HTTP/1.1\r\n Host: x\r\n\r\n", 400},
	{"a space in a name", getHead + "X Y: a\r\n\r\n", 400},
	{"no colon", getHead + "Nonsense\r\n\r\n", 400},
	{"no colon in the last of several", getHead + "Accept: a\r\nNonsense\r\nOrigin: b\r\n\r\n", 400},
	{"no name", getHead + ": a\r\n\r\n", 400},
	{"a name with brackets", getHead + "X(Y): a\r\n\r\n", 400},
	{"a name that is not ASCII", getHead + "X\xc3\xa9: a\r\n\r\n", 400},
	{"NUL in a name", getHead + "X\x00: a\r\n\r\n", 400},
	{"NUL in a value", getHead + "X: a\x00b\r\n\r\n", 400},
	{"a control character in a value", getHead + "User-Agent: abcd\x01efgh\r\n\r\n", 400},
	{"a control character at the end of a value", getHead + "User-Agent: abcdefghi\x1f\r\n\r\n", 400},
	{"DEL in a value", getHead + "User-Agent: a\x7fb\r\n\r\n", 400},
	{"HTTP/0.9", "GET /\r\n", 400},
	{"HTTP/0.9 with headers", "GET /\r\nHost: x\r\n\r\n", 400},
	{"HTTP/1.2", "GET / HTTP/1.2\r\nHost: x\r\n\r\n", 400},
	{"HTTP/2 in words", "GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400},
	{"HTTP/2's first words", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
	{"small http", "GET / http/1.1\r\nHost: x\r\n\r\n", 400},
	{"no minor version", "GET / HTTP/1\r\nHost: x\r\n\r\n", 400},
	{"a long minor version", "GET / HTTP/1.10\r\nHost: x\r\n\r\n", 400},
	{"absolute form", "GET http://x/v1/sales HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"absolute form with another host", "GET http://evil/v1/sales HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"authority form", "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n", 400},
	{"asterisk form", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"no slash", "GET v1 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a tab after the method", "GET\t/ HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a tab after the target", "GET /\tHTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a tab in the target", "GET /a\tb HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a space in the target", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"two spaces before the target", "GET  / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"two spaces after the target", "GET /  HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a space after the version", "GET / HTTP/1.1 \r\nHost: x\r\n\r\n", 400},
	{"a space first", " GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a fragment", "GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a small method", "get / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"an odd method", "G(T / HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"NUL in the target", "GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400},
	{"no host", "GET / HTTP/1.1\r\nAccept: a\r\n\r\n", 400},
	{"two hosts", getHead + "Host: y\r\n\r\n", 400},
	{"the same host twice", getHead + "Host: x\r\n\r\n", 400},
	{"a host with a path", "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", 400},
	{"a host with a space", "GET / HTTP/1.1\r\nHost: x y\r\n\r\n", 400},
	{"a host with a tab", "GET / HTTP/1.1\r\nHost:\tx\r\n\r\n", 400},
	{"a host with a quotation mark", "GET / HTTP/1.1\r\nHost: x\"y\r\n\r\n", 400},
	{"a host that is not ASCII", "GET / HTTP/1.1\r\nHost: x\xe9\r\n\r\n", 400},
	{"a host with two dots", "GET / HTTP/1.1\r\nHost: x..y\r\n\r\n", 400},
	{"a host without a name", "GET / HTTP/1.1\r\nHost: :80\r\n\r\n", 400},
	{"an empty host in HTTP/1.0", "GET / HTTP/1.0\r\nHost:\r\n\r\n", 400},
	{"a host of a dot", "GET / HTTP/1.1\r\nHost: .\r\n\r\n", 400},
	{"a host of garbage in brackets", "GET / HTTP/1.1\r\nHost: [:1]\r\n\r\n", 400},
	{"a host of IPv4 in brackets", "GET / HTTP/1.1\r\nHost: [192.0.2.1]\r\n\r\n", 400},
	{"a host of a zone in brackets", "GET / HTTP/1.1\r\nHost: [fe80::1%25eth0]\r\n\r\n", 400},
	{"a host of nothing in brackets", "GET / HTTP/1.1\r\nHost: []:80\r\n\r\n", 400},
	{"a host of brackets without an end", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400},
	{"a host of a name behind brackets", "GET / HTTP/1.1\r\nHost: [::1]x\r\n\r\n", 400},
	{"a host of nine groups in brackets", "GET / HTTP/1.1\r\nHost: [1:2:3:4:5:6:7:8:9]\r\n\r\n", 400},
	{"a host of IPv4 with a zero too many in brackets", "GET / HTTP/1.1\r\nHost: [::ffff:192.0.2.01]\r\n\r\n", 400},
	{"a host of a dot and a port", "GET / HTTP/1.1\r\nHost: .:80\r\n\r\n", 400},
	{"chunk size: none", post("Transfer-Encoding: chunked") + "\r\n\r\n", 400},
	{"chunk size: no number", post("Transfer-Encoding: chunked") + "zz\r\n\r\n", 400},
	{"chunk size: minus", post("Transfer-Encoding: chunked") + "-1\r\n\r\n", 400},
	{"chunk size: overflow", post("Transfer-Encoding: chunked") + "fffffffffffffffff\r\nabc\r\n0\r\n\r\n", 400},
	{"chunk size: 2^64 + 3", post("Transfer-Encoding: chunked") + "10000000000000003\r\nabc\r\n0\r\n\r\n", 400},
	{"a chunk that is longer than its size", post("Transfer-Encoding: chunked") + "3\r\nabcd\r\n0\r\n\r\n", 400},
	{"escaped slash", "GET /v1%2fsales HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"escaped dot", "GET /%2e%2e/x HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"escaped NUL", "GET /a%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"broken escape", "GET /a%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"half an escape", "GET /a%2 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"dot segments", "GET /a/../b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a dot segment at the end", "GET /a/. HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"an empty segment", "GET /a//b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a backslash", "GET /a\\b HTTP/1.1\r\nHost: x\r\n\r\n", 400},
	{"a long header line", getHead + "A: " + strings.Repeat("a", 9000) + "\r\n\r\n", 431},
	{"a header line of 8193 bytes", getHead + "A: " + strings.Repeat("a", 8193-5) + "\r\n\r\n", 431},
	{"a long request line", "GET /" + strings.Repeat("a", 9000) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431},
	{"101 lines", "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("A: b\r\n", 100) + "\r\n", 431},
	{"a head of 16385 bytes", headOf(16385), 431},
	{"a body of 16385 bytes", post("Content-Length: 16385") + strings.Repeat("a", 16385), 413},
	{"an announced body of a gigabyte", post("Content-Length: 1073741824") + "a", 413},
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

func TestEdgesRejectAmbiguousRequests(t *testing.T) {
	both := startBoth(t, options{policy: limitless}, play)
	for _, c := range malformed {
		compare(t, both, exchange{name: c.name, raw: c.raw + smuggled, codes: fmt.Sprint(c.code)})
	}
	for _, c := range malformed[:63] {
		compare(
			t,
			both,
			exchange{
				name:  "behind another request: " + c.name,
				raw:   request("GET", "/first") + c.raw + smuggled,
				codes: fmt.Sprintf("200 %d", c.code),
			},
		)
	}
	for _, e := range both {
		if got := e.backend.take(); len(got) > 0 {
			t.Errorf("the backend of %s got %s", e.name, got[0])
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
