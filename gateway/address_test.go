package gateway

import (
	"net/netip"
	"strings"
	"testing"
)

func TestForwardedFor(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::/48")}
	for _, c := range []struct {
		name, peer, forwarded, want string
	}{
		{"no header", "10.0.0.1", "", "10.0.0.1"},
		{"peer is not trusted", "192.0.2.9", "198.51.100.1", "192.0.2.9"},
		{"one hop", "10.0.0.1", "198.51.100.1", "198.51.100.1"},
		{"right-most untrusted hop", "10.0.0.1", "203.0.113.66, 198.51.100.1, 10.2.3.4", "198.51.100.1"},
		{"invalid hop left of it", "10.0.0.1", "<script>, 198.51.100.1", "198.51.100.1"},
		{"all trusted: the left-most", "10.0.0.1", "10.3.3.3,10.2.2.2", "10.3.3.3"},
		{"spaces and tabs", "10.0.0.1", " \t198.51.100.1\t ", "198.51.100.1"},
		{"IPv6", "2001:db8:1::5", "2001:db8:2::7", "2001:db8:2::7"},
		{"IPv4 mapped into IPv6", "10.0.0.1", "::ffff:198.51.100.1", "198.51.100.1"},
		{"a trusted hop, mapped", "10.0.0.1", "198.51.100.1, ::ffff:10.9.9.9", "198.51.100.1"},
		{"garbage", "10.0.0.1", "unknown", "10.0.0.1"},
		{"garbage to the right", "10.0.0.1", "198.51.100.1, unknown", "10.0.0.1"},
		{"garbage behind a trusted hop", "10.0.0.1", "unknown, 10.2.2.2", "10.0.0.1"},
		{"an empty hop", "10.0.0.1", "198.51.100.1,", "10.0.0.1"},
		{"a port", "10.0.0.1", "198.51.100.1:1234", "10.0.0.1"},
		{"brackets", "10.0.0.1", "[2001:db8::1]", "10.0.0.1"},
		{"a zone", "10.0.0.1", "fe80::1%eth0", "10.0.0.1"},
		{"leading zeros", "10.0.0.1", "198.051.100.001", "10.0.0.1"},
		{"sixteen hops", "10.0.0.1", "198.51.100.1" + strings.Repeat(",10.1.1.1", 15), "198.51.100.1"},
		{"seventeen hops", "10.0.0.1", "198.51.100.1" + strings.Repeat(",10.1.1.1", 16), "10.0.0.1"},
		{"a long header", "10.0.0.1", strings.Repeat(" ", 1024) + "198.51.100.1", "10.0.0.1"},
	} {
		if got := forwardedFor(trusted, netip.MustParseAddr(c.peer), []byte(c.forwarded)); got.String() != c.want {
			t.Errorf("%s: %q from %s is %s, want %s", c.name, c.forwarded, c.peer, got, c.want)
		}
	}
	if got := forwardedFor(nil, netip.MustParseAddr("10.0.0.1"), []byte("198.51.100.1")); got.String() != "10.0.0.1" {
		t.Errorf("without trusted proxies: %s, want the peer", got)
	}
}

// For every header the result is a plain address: that of the peer, or a complete hop of the header.
func FuzzForwardedFor(f *testing.F) {
	for _, s := range []string{
		"198.51.100.1", "10.0.0.1, 10.0.0.2", "::ffff:1.2.3.4", "fe80::1%eth0", ",,,", "[::1]:80", "1.2.3.4:5",
		"2001:db8::1 , 10.1.1.1",
	} {
		f.Add([]byte(s))
	}
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::/1")}
	peer := netip.MustParseAddr("10.0.0.1")
	f.Fuzz(func(t *testing.T, forwarded []byte) {
		got := forwardedFor(trusted, peer, forwarded)
		if !got.IsValid() || got.Is4In6() || got.Zone() != "" {
			t.Fatalf("%q gives %v", forwarded, got)
		}
		if got == peer {
			return
		}
		for hop := range strings.SplitSeq(string(forwarded), ",") {
			if a, err := netip.ParseAddr(strings.Trim(hop, " \t")); err == nil && a.Unmap() == got {
				return
			}
		}
		t.Fatalf("%q gives %v, which is not one of its hops", forwarded, got)
	})
}
