// Package address parses the addresses of backends and listeners in settings. A parsed address contains no character
// with a meaning in the configuration of nginx.
package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"sluice/internal/unixsocket"
)

// Backend returns the address of a backend: host:port for "host:port" and "http://host:port", of which the port may be
// absent, and "unix:/path" unchanged. The error does not repeat raw.
func Backend(raw string) (string, error) {
	if unixsocket.IsAddress(raw) {
		return raw, unixsocket.Check(raw)
	}
	hostPort := raw
	if strings.Contains(raw, "://") {
		u, err := url.Parse(raw)
		switch {
		case err != nil:
			return "", errors.New("not a URL")
		case u.Scheme != "http":
			return "", fmt.Errorf("backends are reached by http, and not by %s", u.Scheme)
		case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "":
			return "", errors.New("write http://host:port and nothing more")
		}
		if hostPort = u.Host; u.Port() == "" {
			hostPort = net.JoinHostPort(u.Hostname(), "80")
		}
	}
	host, port, err := Split(hostPort)
	if err == nil && host == "" {
		err = errNoHost
	}
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, port), nil
}

var (
	hostName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,252})$`)
	errNoHost = errors.New("not a host name or address")
)

// Split returns the parts of "host:port". The host may be empty, and the port is from 1 to 65535.
func Split(hostPort string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(hostPort)
	if err != nil {
		return "", "", errors.New("write host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", "", errors.New("the port must be a number from 1 to 65535")
	}
	name, zone, zoned := strings.Cut(host, "%")
	ip, err := netip.ParseAddr(name)
	isAddress := err == nil && (!zoned || ip.Is6() && hostName.MatchString(zone))
	if host != "" && !isAddress && !hostName.MatchString(host) {
		return "", "", errNoHost
	}
	return host, port, nil
}
