package outbound

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const maxURL = 2048 // bytes

// CheckURL checks whether a URL is allowed. The addresses of a host name are checked when Do connects. The error is a
// single line that continues a sentence about the URL, such as "must begin with https://".
func (c *Client) CheckURL(raw string) error {
	if len(raw) > maxURL {
		return fmt.Errorf("must have at most %d bytes", maxURL)
	}
	for i := range len(raw) {
		if raw[i] <= ' ' || raw[i] > '~' || raw[i] == '\\' {
			return errors.New("must be printable ASCII without spaces and backslashes: encode host names as xn--..., and " +
				"the rest as %XX")
		}
	}
	u, err := url.Parse(raw)
	if err != nil {
		return errors.New("is not a URL")
	}
	if strings.Contains(raw, "#") {
		return errFragment
	}
	return c.check(u)
}

var errFragment = errors.New("must have no fragment (#...)")

func (c *Client) check(u *url.URL) error {
	switch {
	case u.Scheme == "http" && len(c.cfg.AllowPrivate) == 0:
		return errors.New("must begin with https://" + c.remedy("http:// is for networks of"))
	case u.Scheme != "https" && u.Scheme != "http":
		return errors.New("must begin with https://")
	case u.Opaque != "" || u.Hostname() == "":
		return errors.New("must contain a host")
	case u.User != nil:
		return errors.New("must not contain a user or password")
	case u.Fragment != "":
		return errFragment
	}
	if u.Port() != "" || strings.HasSuffix(u.Host, ":") {
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		if err != nil || !portAllowed(uint16(port)) {
			return errors.New("has a port that is not allowed: use 80, 443, or one from 1024 that is not assigned to " +
				"another protocol")
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
		return fmt.Errorf("has an address that is not allowed: it is not public%s%s",
			map[bool]string{true: ", or requires https"}[u.Scheme == "http"], c.remedy("private networks are allowed with"))
	}
	return nil
}

// remedy names the setting that allows networks, if there is one.
func (c *Client) remedy(text string) string {
	if c.cfg.Setting == "" {
		return ""
	}
	return " (" + text + " " + c.cfg.Setting + ")"
}

// otherProtocols lists ports from 1024 on that are blocked: the bad ports of the Fetch standard, whose protocols could
// misinterpret an HTTP request, and those of the databases that sluice uses.
var otherProtocols = []uint16{
	1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
	5432, 6379, 11211, 16379, 26379,
}

func portAllowed(port uint16) bool {
	return port == 80 || port == 443 || port >= 1024 && !slices.Contains(otherProtocols, port)
}

// ParseNetworks parses networks, for example 10.0.0.0/8 or fd00::/8, and single addresses. The error is a single line.
func ParseNetworks(list []string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			ip, bad := netip.ParseAddr(text)
			if bad != nil || ip.Zone() != "" {
				return nil, fmt.Errorf("%q is not a network: use the form 10.0.0.0/8", text)
			}
			p = netip.PrefixFrom(ip, ip.BitLen())
		}
		if p.Addr().Is4In6() {
			return nil, fmt.Errorf("%q is an IPv4-mapped network: use the form 10.0.0.0/8", text)
		}
		if p != p.Masked() {
			return nil, fmt.Errorf("%q is not the first address of its network: use %s", text, p.Masked())
		}
		networks = append(networks, p)
	}
	return networks, nil
}
