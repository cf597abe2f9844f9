package rehearsal

import (
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/test/testenv"
)

func TestLocalhostHasLoopbackAddresses(t *testing.T) {
	v6, v4 := net.IPAddr{IP: net.IPv6loopback}, net.IPAddr{IP: net.IPv4(127, 0, 0, 1)}
	other := net.IPAddr{IP: net.IPv4(10, 0, 0, 1)}
	for _, c := range []struct {
		addresses []net.IPAddr
		want      bool
	}{{[]net.IPAddr{v6, v4}, true}, {[]net.IPAddr{v4}, true}, {[]net.IPAddr{v6}, false}, {[]net.IPAddr{other}, false}} {
		if got := slices.ContainsFunc(c.addresses, isLoopback); got != c.want {
			t.Errorf("%v: %t, want %t", c.addresses, got, c.want)
		}
	}
}

func TestAnEdgeThatDoesNotRespondIsNamedWithTheRemedy(t *testing.T) {
	t.Parallel()
	target := &url.URL{Scheme: "http", Host: testenv.FreeAddress(t)}
	err := newEdge(target, maxProbes, time.Minute).detectAddresses(t.Context())
	want := "edge " + target.String() + " does not respond: start it, or set --target to its address (dial "
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
