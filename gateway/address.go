package gateway

import (
	"bytes"
	"net/netip"
	"slices"

	"sluice/gateway/internal/ascii"
	"sluice/gateway/proxy"
)

// Limits of X-Forwarded-For. No real chain of proxies exceeds them; parsing longer headers would be expensive.
const (
	maxForwarded = 1024 // bytes
	maxHops      = 16
)

// clientAddress returns the address that the limits apply to: the peer's, or the one reported by a trusted proxy in
// its PROXY header or in X-Forwarded-For. conn may be nil.
func clientAddress(trusted []netip.Prefix, conn *proxy.Conn, peer netip.Addr, forwarded []byte) netip.Addr {
	if conn != nil {
		if source := conn.ProxySource(); source.IsValid() && contains(trusted, peer) {
			peer = source
		}
	}
	return forwardedFor(trusted, peer, forwarded)
}

// forwardedFor returns the peer, unless it is a trusted proxy. Then it returns the right-most hop of X-Forwarded-For
// that is not trusted, or the left-most hop if all are. An invalid header is ignored.
func forwardedFor(trusted []netip.Prefix, peer netip.Addr, forwarded []byte) netip.Addr {
	if len(trusted) == 0 || len(forwarded) == 0 || len(forwarded) > maxForwarded || !contains(trusted, peer) {
		return peer
	}
	for range maxHops {
		comma := bytes.LastIndexByte(forwarded, ',')
		hop, ok := parseAddr(bytes.Trim(forwarded[comma+1:], " \t"))
		if !ok {
			return peer
		}
		if comma < 0 || !contains(trusted, hop) {
			return hop
		}
		forwarded = forwarded[:comma]
	}
	return peer
}

func contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// parseAddr parses an address without port or zone. An IPv4-mapped IPv6 address becomes the IPv4 address.
func parseAddr(text []byte) (netip.Addr, bool) {
	if len(text) == 0 || len(text) > 45 || bytes.IndexByte(text, '%') >= 0 {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(ascii.String(text))
	return a.Unmap(), err == nil
}
