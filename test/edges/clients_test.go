package edges

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

const trusting = `return { trusted_proxies = { "127.0.0.1", "10.0.0.0/8", "2001:db8:ffff::/48" }, rules = {} }`

// repeat returns n times the same hop, separated by commas.
func repeat(hop string, n int) string { return strings.TrimSuffix(strings.Repeat(hop+",", n), ",") }

// addresses are headers with client addresses, each with the client that both edges derive. The peer is 127.0.0.1,
// and trusted.
var addresses = []struct {
	lines  []string // X-Forwarded-For, one a line
	client string
}{
	{nil, "127.0.0.1"},
	{[]string{"192.0.2.1"}, "192.0.2.1"},
	{[]string{"203.0.113.7, 192.0.2.1"}, "192.0.2.1"}, // the client's own entries are to the left
	{[]string{"203.0.113.7, 192.0.2.1, 10.1.2.3"}, "192.0.2.1"},
	{[]string{"203.0.113.7", "192.0.2.1", "10.1.2.3"}, "192.0.2.1"}, // several lines are one list
	{[]string{"192.0.2.1", ""}, "127.0.0.1"},
	{[]string{"", "192.0.2.1"}, "192.0.2.1"},
	{[]string{"", "10.1.1.1"}, "127.0.0.1"},
	{[]string{"192.0.2.1,", "10.1.1.1"}, "127.0.0.1"},
	{[]string{"10.0.0.1, 10.0.0.2"}, "10.0.0.1"}, // all are trusted: the left-most
	{[]string{"garbage, 192.0.2.1"}, "192.0.2.1"},
	{[]string{"192.0.2.1, garbage"}, "127.0.0.1"},
	{[]string{"192.0.2.1, garbage, 10.0.0.1"}, "127.0.0.1"},
	{[]string{"192.0.2.1, unknown"}, "127.0.0.1"},
	{[]string{""}, "127.0.0.1"},
	{[]string{","}, "127.0.0.1"},
	{[]string{",,,,"}, "127.0.0.1"},
	{[]string{"192.0.2.1,"}, "127.0.0.1"},
	{[]string{",192.0.2.1"}, "192.0.2.1"},
	{[]string{"192.0.2.1 192.0.2.2"}, "127.0.0.1"},
	{[]string{"192.0.2.1;10.0.0.1"}, "127.0.0.1"},
	{[]string{"192.0.2.1:80"}, "127.0.0.1"},
	{[]string{"192.0.2.1:80, 10.0.0.1"}, "127.0.0.1"},
	{[]string{"192.0.2.1/32"}, "127.0.0.1"},
	{[]string{"192.0.2.01"}, "127.0.0.1"},
	{[]string{"192.0.2"}, "127.0.0.1"},
	{[]string{"192.0.2.256"}, "127.0.0.1"},
	{[]string{"192.0.2.1.1"}, "127.0.0.1"},
	{[]string{"3221225985"}, "127.0.0.1"},
	{[]string{"0xC0.0.2.1"}, "127.0.0.1"},
	{[]string{"-192.0.2.1"}, "127.0.0.1"},
	{[]string{"\"192.0.2.1\""}, "127.0.0.1"},
	{[]string{"  192.0.2.1\t"}, "192.0.2.1"},
	{[]string{"10.0.0.1 ,\t192.0.2.1 ,\t10.0.0.2"}, "192.0.2.1"},
	{[]string{"2001:DB8:0:0:0:0:0:1"}, "2001:db8::1"},
	{[]string{"2001:db8::1, 2001:db8:ffff::5"}, "2001:db8::1"},
	{[]string{"::"}, "::"},
	{[]string{"1:2:3:4:5:6:7::"}, "1:2:3:4:5:6:7:0"},
	{[]string{"1:2:3:4:5:6:7:8:9"}, "127.0.0.1"},
	{[]string{"1::2::3"}, "127.0.0.1"},
	{[]string{"12345::"}, "127.0.0.1"},
	{[]string{"::ffff:192.0.2.1"}, "192.0.2.1"},
	{[]string{"::ffff:c000:201"}, "192.0.2.1"},
	{[]string{"::FFFF:10.0.0.1"}, "10.0.0.1"},
	{[]string{"192.0.2.1, ::ffff:10.0.0.1"}, "192.0.2.1"},
	{[]string{"::192.0.2.1"}, "::c000:201"},
	{[]string{"64:ff9b::192.0.2.1"}, "64:ff9b::c000:201"},
	{[]string{"::ffff:192.0.2.01"}, "127.0.0.1"},
	{[]string{"2001:db8::1%eth0"}, "127.0.0.1"},
	{[]string{"fe80::1%25eth0"}, "127.0.0.1"},
	{[]string{"::ffff:192.0.2.1%1"}, "127.0.0.1"},
	{[]string{"[2001:db8::1]"}, "127.0.0.1"},
	{[]string{"[2001:db8::1]:443"}, "127.0.0.1"},
	{[]string{"for=192.0.2.1"}, "127.0.0.1"},
	{[]string{"192.0.2.1" + strings.Repeat(",10.1.1.1", 15)}, "192.0.2.1"}, // sixteen hops
	{[]string{"192.0.2.1" + strings.Repeat(",10.1.1.1", 16)}, "127.0.0.1"}, // one more than an edge reads
	{[]string{repeat("10.1.1.1", 15), "192.0.2.1"}, "192.0.2.1"},
	{[]string{repeat("192.0.2.9", 80) + ", 192.0.2.1"}, "192.0.2.1"},
	{[]string{repeat("1.1.1.1", 1000)}, "127.0.0.1"}, // more than 1 KiB is an attack
	{[]string{repeat("a", 400), "192.0.2.1"}, "192.0.2.1"},
	{[]string{"192.0.2.9," + strings.Repeat(" ", 1024) + "192.0.2.1"}, "127.0.0.1"},
	{[]string{strings.Repeat("1", 46)}, "127.0.0.1"},
	{[]string{strings.Repeat("0000:", 7) + "192.0.2.1"}, "127.0.0.1"},
}

func TestEdgesAgreeOnTheClientAddress(t *testing.T) {
	for _, e := range startBoth(t, options{policy: trusting}, play) {
		for _, c := range addresses {
			lines := []string{"Connection: close", "X-Real-IP: 203.0.113.99", "Forwarded: for=203.0.113.98"}
			for _, l := range c.lines {
				lines = append(lines, "X-Forwarded-For: "+l)
			}
			wantClient(t, e, fmt.Sprintf("%.80q", c.lines), request("GET", "/", lines...), c.client)
		}
	}
}

func TestUntrustedPeerIsTheClient(t *testing.T) {
	for _, e := range startBoth(t, options{policy: limitless}, play) {
		wantClient(t, e, "X-Forwarded-For", request("GET", "/", "X-Forwarded-For: 192.0.2.1", "Connection: close"),
			"127.0.0.1")
	}
	const others = `return { trusted_proxies = { "10.0.0.0/8" }, rules = {} }`
	for _, e := range append(startBoth(t, options{policy: limitless, proxyProtocol: true}, play),
		startBoth(t, options{policy: others, proxyProtocol: true}, play)...) {
		wantClient(t, e, "PROXY",
			"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n"+request("GET", "/", "X-Forwarded-For: 192.0.2.3", "Connection: close"),
			"127.0.0.1")
	}
}

// wantClient checks the client that the backend receives.
func wantClient(t *testing.T, e *edge, name, raw, client string) {
	t.Helper()
	h := e.send(t, raw)
	got := e.backend.take()
	if len(h.codes) != 1 || h.codes[0] != 200 || len(got) != 1 {
		t.Errorf("%s: %s answered %v, and the backend got %d requests", name, e.name, h.codes, len(got))
		return
	}
	if ip, chain := got[0].header.Values("X-Real-Ip"), got[0].header.Values(
		"X-Forwarded-For",
	); len(ip) != 1 || ip[0] != client || len(chain) != 1 ||
		chain[0] != client {
		t.Errorf("%s: the backend gets from %s %q and %q, want %s", name, e.name, ip, chain, client)
	}
}

// second returns a header of version 2 of the PROXY protocol.
func second(command, family byte, from, to string) string {
	b := append([]byte("\r\n\r\n\x00\r\nQUIT\n"), 0x20|command, family)
	var body []byte
	if from != "" {
		body = append(netip.MustParseAddr(from).AsSlice(), netip.MustParseAddr(to).AsSlice()...)
		body = append(body, 0, 1, 0, 2)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(len(body))) //nolint:gosec // 36 at most
	return string(append(b, body...))
}

func TestEdgesAgreeOnProxyHeaders(t *testing.T) {
	both := startBoth(t, options{policy: trusting, proxyProtocol: true}, play)
	for _, c := range []struct {
		name, header, forwarded, client string // no client: the connection is closed without a response
	}{
		{"TCP4", "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n", "", "192.0.2.1"},
		{"TCP6", "PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n", "", "2001:db8::1"},
		{"UNKNOWN", "PROXY UNKNOWN\r\n", "", "127.0.0.1"},
		{"UNKNOWN with words", "PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", "", "127.0.0.1"},
		{
			"the named address is not trusted, so its header is ignored", "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", "203.0.113.1",
			"192.0.2.1",
		},
		{"the named address is trusted", "PROXY TCP4 10.0.0.1 192.0.2.2 1 2\r\n", "203.0.113.1, 192.0.2.7", "192.0.2.7"},
		{"no address, and the peer is trusted", "PROXY UNKNOWN\r\n", "192.0.2.7", "192.0.2.7"},
		{"the second version, TCP4", second(1, 0x11, "192.0.2.1", "192.0.2.2"), "", "192.0.2.1"},
		{"the second version, TCP6", second(1, 0x21, "2001:db8::1", "2001:db8::2"), "", "2001:db8::1"},
		{"the second version, TCP6, mapped", second(1, 0x21, "::ffff:192.0.2.1", "::ffff:192.0.2.2"), "", "192.0.2.1"},
		{"the second version, LOCAL", second(0, 0x00, "", ""), "", "127.0.0.1"},
		{"no header", "", "", ""},
		{"an unknown header", "PROXY TCP5 192.0.2.1 192.0.2.2 1 2\r\n", "", ""},
		{"half a header", "PROXY TCP4 192.0.2.1\r\n", "", ""},
		{"a third version", strings.Replace(second(1, 0x11, "192.0.2.1", "192.0.2.2"), "\x21", "\x31", 1), "", ""},
	} {
		lines := []string{"Connection: close"}
		if c.forwarded != "" {
			lines = append(lines, "X-Forwarded-For: "+c.forwarded)
		}
		for _, e := range both {
			if c.client != "" {
				wantClient(t, e, c.name, c.header+request("GET", "/", lines...), c.client)
				continue
			}
			if h := e.send(t, c.header+request("GET", "/", lines...)); len(h.answers) > 0 || !h.closed {
				t.Errorf("%s: %s answered %q, want the connection closed", c.name, e.name, h.answers)
			}
		}
	}
	for _, e := range both {
		if got := e.backend.take(); len(got) > 0 {
			t.Errorf("the backend of %s got %s", e.name, got[0])
		}
	}
}
