package outbound

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const maxURL = 2048 // bytes

// CheckURL reads a URL that a request may be sent to. Whether the name leads to an allowed address is asked when it is connected to, and not before;
// an address that is written out is judged here. The error is one line for whoever named the URL, and wraps ErrRefused.
func (c *Client) CheckURL(raw string) (*url.URL, error) {
	if len(raw) > maxURL {
		return nil, refused("must have at most %d bytes", maxURL)
	}
	for i := range len(raw) {
		if raw[i] <= ' ' || raw[i] > '~' || raw[i] == '\\' {
			return nil, refused("must be of printable ASCII without blanks and backslashes: names of other scripts are written xn--..., the rest %%XX")
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, refused("is no URL")
	}
	if strings.Contains(raw, "#") {
		return nil, refused("must have no fragment (#...)")
	}
	return u, c.check(u)
}

func (c *Client) check(u *url.URL) error {
	switch {
	case u.Scheme == "http" && len(c.cfg.AllowPrivate) == 0:
		return refused("must begin with https://")
	case u.Scheme != "https" && u.Scheme != "http":
		return refused("must begin with https://")
	case u.Opaque != "" || u.Hostname() == "":
		return refused("must name a host")
	case u.User != nil:
		return refused("must hold no user and password")
	case u.Fragment != "":
		return refused("must have no fragment (#...)")
	}
	if u.Port() != "" || strings.HasSuffix(u.Host, ":") {
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || !portAllowed(uint16(port)) {
			return refused("has a port that is not allowed: want 80, 443, or one from 1024 on that no other protocol is known for")
		}
	}
	guard := c.guard
	if u.Scheme == "http" {
		guard = c.private
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		host = "127.0.0.1"
	}
	if ip, err := netip.ParseAddr(host); err == nil && guard.SafeAddr(ip.Unmap()) != nil {
		return refused("leads to an address that is not allowed: it is not public%s", map[bool]string{true: ", or not reached by https"}[u.Scheme == "http"])
	}
	return nil
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: the URL "+format, append([]any{ErrRefused}, args...)...)
}

// otherProtocols are ports from 1024 on that browsers do not send HTTP to either, because something else may listen there that takes a request for its own
// (the bad ports of the Fetch standard), and those of the stores that sluice itself uses.
var otherProtocols = []uint16{
	1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
	5432, 6379, 11211, 16379, 26379,
}

func portAllowed(port uint16) bool {
	return port == 80 || port == 443 || port >= 1024 && !slices.Contains(otherProtocols, port)
}

// ParseNetworks reads what an operator allows: networks such as 10.0.0.0/8 or fd00::/8, or single addresses. The error is one line.
func ParseNetworks(list []string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			ip, bad := netip.ParseAddr(text)
			if bad != nil || ip.Zone() != "" {
				return nil, fmt.Errorf("%q is no network: want one such as 10.0.0.0/8", text)
			}
			p = netip.PrefixFrom(ip, ip.BitLen())
		}
		if p.Addr().Is4In6() {
			return nil, fmt.Errorf("%q is an IPv4 network written as IPv6: want it such as 10.0.0.0/8", text)
		}
		if p != p.Masked() {
			return nil, fmt.Errorf("%q is an address with a length: the network is %s", text, p.Masked())
		}
		networks = append(networks, p)
	}
	return networks, nil
}
