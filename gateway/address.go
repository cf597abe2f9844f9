package gateway

import (
	"bytes"
	"net"
	"net/netip"
)

// Longer X-Forwarded-For headers than any real chain of proxies makes were made to be expensive.
const (
	maxForwarded = 1024 // bytes
	maxHops      = 16
)

// relayed is the address at the other end of a connection, or whom a load balancer names there in its PROXY header, if it is trusted. named may be the
// zero Addr.
func relayed(trusted []netip.Prefix, peer, named netip.Addr) netip.Addr {
	if named.IsValid() && contains(trusted, peer) {
		return named
	}
	return peer
}

// clientOf is the address that a request counts for: the peer's, unless the peer is a trusted proxy. Then it is the right-most hop of
// X-Forwarded-For that is not trusted itself; if all are, the left-most. A header that does not parse says nothing, and the peer counts.
func clientOf(trusted []netip.Prefix, peer netip.Addr, forwarded []byte) netip.Addr {
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
	for _, n := range networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}

// parseAddr reads an address without port or zone. An IPv4 address mapped into IPv6 is that IPv4 address.
func parseAddr(text []byte) (netip.Addr, bool) {
	if len(text) == 0 || len(text) > 45 || bytes.IndexByte(text, '%') >= 0 {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(asString(text))
	return a.Unmap(), err == nil
}

// peerOf is the address at the other end of a connection; 0.0.0.0 where there is none, as with pipes.
func peerOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		if ip, ok := netip.AddrFromSlice(tcp.IP); ok {
			return ip.Unmap()
		}
	}
	if a != nil {
		if ap, err := netip.ParseAddrPort(a.String()); err == nil {
			return ap.Addr().Unmap().WithZone("")
		}
	}
	return netip.IPv4Unspecified()
}
