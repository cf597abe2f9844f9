package nginx

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestAddressArithmetic(t *testing.T) {
	server := requireLua(t)
	for _, c := range []struct {
		network, address string
		in               bool
	}{
		{"10.0.0.0/8", "10.255.0.1", true}, {"10.0.0.0/8", "11.0.0.0", false}, {"0.0.0.0/0", "255.255.255.255", true},
		{"0.0.0.0/0", "::1", false},
		{"192.0.2.128/25", "192.0.2.127", false}, {"192.0.2.128/25", "192.0.2.200", true}, {"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1/32", "192.0.2.0", false},
		{"2001:db8::/33", "2001:db8:7fff::", true}, {
			"2001:db8::/33", "2001:db8:8000::", false,
		}, {"::/0", "2001:db8::", true}, {"::/0", "10.0.0.1", false},
		{"::ffff:10.0.0.0/104", "10.9.9.9", true}, {"10.0.0.0/8", "::ffff:10.9.9.9", true}, {"10.1.2.3/8", "10.9.9.9", true},
	} {
		got := server.run(t, `
			local address = require "sluice.address"
			local network, other = assert(address.network(`+luaString(c.network)+`)), assert(address.parse("203.0.113.1"))
			local peer = address.parse(`+luaString(c.address)+`)
			-- X-Forwarded-For counts only from a trusted peer.
			return address.client({ network }, peer, "203.0.113.1") == other
		`)
		if got != map[bool]string{true: "true", false: "false"}[c.in] {
			t.Errorf("%s in %s: %s, want %v", c.address, c.network, got, c.in)
		}
	}
	for _, bad := range []string{
		"", "10.0.0.0/33", "2001:db8::/129", "10.0.0.0/-1", "10.0.0.0/", "/8", "10.0.0/8", "10.0.0.0/8 ",
		"::ffff:10.0.0.0/90", "10.0.0.0/1e1", "a/8",
	} {
		if got := server.run(t, `return tostring(require("sluice.address").network(`+luaString(bad)+`))`); got != "nil" {
			t.Errorf("%q is taken for a network", bad)
		}
	}
}

// Both edges parse addresses alike: the Go gateway with net/netip, this edge with libc.
func TestAddressesAgreeWithNetip(t *testing.T) {
	server := requireLua(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	pieces := []string{
		"",
		"0",
		"1",
		"9",
		"f",
		"F",
		".",
		":",
		"::",
		"00",
		"255",
		"256",
		"ffff",
		"10000",
		"%",
		"[",
		"]",
		"/",
		" ",
		"x",
		"-",
		"+",
		"\x00",
		"\t",
		"192.0.2.1",
		"2001:db8",
		"::ffff:",
	}
	texts := []string{
		"::",
		"::1",
		"::ffff:192.0.2.1",
		"1:2:3:4:5:6:7:8",
		"1:2:3:4:5:6:192.0.2.1",
		"1::8",
		"fe80::1%eth0",
		strings.Repeat("0", 46),
	}
	for range 4000 {
		text := texts[random.IntN(8)]
		if random.IntN(4) == 0 {
			text = fmt.Sprintf("%d.%d.%d.%d", random.IntN(300), random.IntN(300), random.IntN(300), random.IntN(300))
		}
		for range random.IntN(4) {
			at := random.IntN(len(text) + 1)
			text = text[:at] + pieces[random.IntN(len(pieces))] + text[min(len(text), at+random.IntN(2)):]
		}
		texts = append(texts, text)
	}
	for len(texts) > 0 {
		batch := texts[:min(500, len(texts))]
		texts = texts[len(batch):]
		var code strings.Builder
		code.WriteString("local address, out = require 'sluice.address', {}\nfor _, text in ipairs {")
		for _, text := range batch {
			code.WriteString(luaString(text) + ",")
		}
		code.WriteString(
			"} do local bytes = address.parse(text) out[#out + 1] = bytes and address.format(bytes) or 'none' end return " +
				"table.concat(out, '\\n')",
		)
		got := strings.Split(server.run(t, code.String()), "\n")
		if len(got) != len(batch) {
			t.Fatalf("%d answers, want %d", len(got), len(batch))
		}
		for i, text := range batch {
			want := "none"
			if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && len(text) <= 45 {
				want = a.Unmap().String()
			}
			if got[i] != want {
				t.Errorf("%q is %s, and for netip %s (seed %d)", text, got[i], want, seed)
			}
		}
	}
}
