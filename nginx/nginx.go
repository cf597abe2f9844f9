// Package nginx runs the production edge: nginx or OpenResty with this folder's configuration and the Lua modules of lua/edge. It finds the
// binary, writes the few files that differ from machine to machine into a folder of its own (the prefix), checks, starts, stops and reloads.
//
// It takes no part in any request, and knows nothing of limits or tokens: those are in lua/edge, and the policy in lua/policy.lua.
package nginx

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// MinSecret is the least length of a token secret, in bytes.
const MinSecret = 32

// DefaultPerClient is how many requests of one client may be under way at once.
const DefaultPerClient = 1000

// ErrConfig is wrapped by every error that the operator can mend by changing flags, the policy or the configuration files. The message is
// one line a mistake.
var ErrConfig = errors.New("edge")

// Config says how one edge runs. Listen, Upstreams and one of Secret and TokenKeys are required.
type Config struct {
	Listen    string   // host:port; an empty host is every IPv4 address
	Upstreams []string // backends: host:port or http://host:port
	Secret    string   // verifies HS256 tokens without a kid; at least MinSecret bytes. It is passed in the environment and written nowhere
	TokenKeys string   // JWK Set file of keys that verify tokens; read at every start and reload

	Status  string // host:port of a listener for /metrics, which clients must not reach; "" is none
	Policy  string // policy file; "" is lua/policy.lua of Root
	Workers int    // worker processes; 0 is one a CPU

	PerClient     int    // requests of one client that may be under way at once; 0 is DefaultPerClient
	ProxyProtocol bool   // every connection begins with a PROXY header, believed where it comes from the policy's trusted_proxies
	TLSCert       string // PEM file of a certificate and its chain: the listener speaks TLS, and HTTP/2 too
	TLSKey        string // PEM file of its key

	Root   string        // folder with nginx/ and lua/, used in place, so that a reload takes its changes; "" is the embedded files
	Prefix string        // folder for generated files, logs and the pid; made when missing. "" is a temporary one, which Reload cannot find
	Binary string        // nginx or openresty; "" finds it
	Log    io.Writer     // nginx's error log; nil is os.Stderr
	Access string        // access log file; "" is logs/access.log in Prefix, "off" is none
	Grace  time.Duration // how long requests may take to finish when Run is stopped; 0 is 20 s
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,252})$`)

// checked returns a copy with defaults filled in and paths made absolute, or every mistake at once.
func (c Config) checked() (Config, error) {
	var mistakes []string
	wrong := func(format string, args ...any) { mistakes = append(mistakes, fmt.Sprintf(format, args...)) }
	address, err := hostPort(c.Listen, true)
	if err != nil {
		wrong("--listen %q: %v", c.Listen, err)
	}
	c.Listen = address
	if c.Status != "" {
		if c.Status, err = hostPort(c.Status, true); err != nil {
			wrong("the status listener %q: %v", c.Status, err)
		}
	}
	if len(c.Upstreams) == 0 {
		wrong("--upstream: name at least one backend")
	}
	upstreams := make([]string, len(c.Upstreams))
	for i, upstream := range c.Upstreams {
		if upstreams[i], err = backend(upstream); err != nil {
			wrong("--upstream %q: %v", upstream, err)
		}
	}
	c.Upstreams = upstreams
	if len(c.Secret) < MinSecret && (c.TokenKeys == "" || c.Secret != "") {
		wrong("the token secret must have at least %d bytes, and has %d", MinSecret, len(c.Secret))
	}
	if strings.ContainsRune(c.Secret, 0) {
		wrong("the token secret must not hold a zero byte")
	}
	if c.Workers < 0 || c.Workers > 1024 {
		wrong("--workers must be between 0 and 1024, and is %d", c.Workers)
	}
	if c.PerClient < 0 || c.PerClient > 65535 {
		wrong("--per-client must be between 1 and 65535, and is %d", c.PerClient)
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		wrong("--tls-cert and --tls-key go together")
	}
	for _, path := range []*string{&c.Policy, &c.TokenKeys, &c.Root, &c.Prefix, &c.Access, &c.TLSCert, &c.TLSKey} {
		if *path == "" || path == &c.Access && *path == "off" {
			continue
		}
		if strings.ContainsAny(*path, "\"\\$\r\n\x00") {
			wrong(`the path %q holds one of " \ $ or a line break, which nginx cannot take`, *path)
		} else if *path, err = filepath.Abs(*path); err != nil {
			wrong("%v", err)
		}
	}
	if len(mistakes) > 0 {
		return c, fmt.Errorf("%w: %s", ErrConfig, strings.Join(mistakes, "\n"))
	}
	if c.Log == nil {
		c.Log = os.Stderr
	}
	if c.Access == "" {
		c.Access = "logs/access.log"
	}
	if c.PerClient == 0 {
		c.PerClient = DefaultPerClient
	}
	if c.Grace == 0 {
		c.Grace = 20 * time.Second
	}
	return c, nil
}

// backend is host:port from an upstream's address in either form.
func backend(upstream string) (string, error) {
	if !strings.Contains(upstream, "://") {
		return hostPort(upstream, false)
	}
	u, err := url.Parse(upstream)
	if err != nil {
		return "", errors.New("not a URL")
	}
	if u.Scheme != "http" {
		return "", fmt.Errorf("backends are reached by http, and not by %s", u.Scheme)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return "", errors.New("write http://host:port and nothing more")
	}
	if u.Port() == "" {
		return hostPort(net.JoinHostPort(u.Hostname(), "80"), false)
	}
	return hostPort(u.Host, false)
}

func hostPort(address string, listen bool) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", errors.New("write host:port")
	}
	if n, err := net.LookupPort("tcp", port); err != nil || n < 1 || strings.Trim(port, "0123456789") != "" {
		return "", errors.New("the port must be a number from 1 to 65535")
	}
	switch {
	case host == "" && listen:
		return "*:" + port, nil
	case net.ParseIP(host) != nil, hostName.MatchString(host):
		return net.JoinHostPort(host, port), nil
	}
	return "", errors.New("not a host name or address")
}
