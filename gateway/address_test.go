package gateway

import (
	"net/netip"
	"strings"
	"testing"
)

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
