// Package nginx runs the production edge: nginx or OpenResty with the configuration of this directory and the Lua
// modules of lua/edge. It finds the binary, writes the files that differ between machines into a directory of its own
// (the prefix), and checks, starts, stops and reloads nginx.
//
// It handles no requests and does not know limits or tokens: those are in lua/edge, and the policy in lua/policy.lua.
package nginx

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"sluice/internal/address"
	"sluice/internal/edgeconfig"
	"sluice/internal/token"
)

// ErrConfig is wrapped by every error that a change of flags, the policy or the configuration files fixes. The message
// has one line for each error.
var ErrConfig = errors.New("edge")

// Config describes one edge. Listen and what Shared requires are required.
type Config struct {
	edgeconfig.Shared // Secret is never written to a file; TokenKeys and the certificate are read at every start and reload

	Listen string // host:port; an empty host is every IPv4 address

	// KeysSocket is a Unix socket at which workers request newer TokenKeys, see package mirror. With it, workers follow
	// that file without a reload, and must be able to read it.
	KeysSocket string

	// LeaseSocket is a Unix socket at which workers lease for rules with scope = "fleet", see package fleetlimit. "": a
	// policy with such a rule is invalid.
	LeaseSocket string

	Spans *Spans // exports spans of sampled requests; nil: no spans

	Version string // of sluice, for the metrics; "" is unknown

	Status  string // host:port of a listener for /metrics, which clients must not reach; "" is none
	Policy  string // policy file; "" is lua/policy.lua of Root
	Workers int    // worker processes; 0 is one a CPU

	Root   string        // directory with nginx/ and lua/, used in place; "": the embedded files
	Prefix string        // directory for generated files, logs and the pid; "": a temporary one, which Reload cannot find
	Binary string        // nginx or openresty; "" finds it
	Log    io.Writer     // nginx's error log, from notices on; nil is os.Stderr
	Grace  time.Duration // how long requests may take to finish when Run is stopped; 0 is 20 s

	Listening func() // Run calls it once nginx accepts connections; nil is none
}

// faults collects all errors of a Config, so that they are reported together.
type faults []string

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// checked returns a copy with defaults and absolute paths, or an error that lists all errors.
func (c Config) checked() (Config, error) {
	var wrong faults
	c.checkListeners(&wrong)
	for _, err := range c.Shared.Check() {
		wrong.add("%v", err)
	}
	c.checkToken(&wrong)
	if c.Workers < 0 || c.Workers > 1024 {
		wrong.add("--workers must be between 0 and 1024, and is %d", c.Workers)
	}
	c.checkTLS(&wrong)
	c.checkPaths(&wrong)
	if len(wrong) > 0 {
		return c, fmt.Errorf("%w: %s", ErrConfig, strings.Join(wrong, "\n"))
	}
	if c.Log == nil {
		c.Log = os.Stderr
	}
	c.Grace = cmp.Or(c.Grace, 20*time.Second)
	return c, nil
}

// checkListeners replaces the addresses of the listeners by their form in nginx's directive listen.
func (c *Config) checkListeners(wrong *faults) {
	listen, err := listenAddress(c.Listen)
	if err != nil {
		wrong.add("--listen %q: %v", c.Listen, err)
	}
	c.Listen = listen
	if c.Status != "" {
		status, err := listenAddress(c.Status)
		if err != nil {
			wrong.add("--metrics %q: %v", c.Status, err)
		}
		c.Status = status
	}
}

func (c *Config) checkToken(wrong *faults) {
	if len(c.Secret) < token.MinSecret && (c.TokenKeys == "" || c.Secret != "") {
		wrong.add("the token secret must have at least %d bytes, and has %d", token.MinSecret, len(c.Secret))
	}
	if strings.ContainsRune(c.Secret, 0) {
		wrong.add("the token secret must not hold a zero byte")
	}
	for _, text := range []string{c.Issuer, c.Audience} {
		if strings.ContainsAny(text, "\"\\$") || strings.ContainsFunc(text, unicode.IsControl) {
			wrong.add(`the issuer or audience %q holds one of " \ $ or a control character, which nginx cannot take`, text)
		}
	}
}

func (c *Config) checkTLS(wrong *faults) {
	for _, file := range [][2]string{{"--tls-cert", c.TLSCert}, {"--tls-key", c.TLSKey}} {
		flag, path := file[0], file[1]
		if info, err := os.Stat(path); path != "" && (err != nil || info.IsDir()) {
			wrong.add("%s: %s is not a file", flag, path)
		}
	}
}

// checkPaths makes the paths absolute.
func (c *Config) checkPaths(wrong *faults) {
	paths := []*string{
		&c.Policy, &c.TokenKeys, &c.KeysSocket, &c.LeaseSocket, &c.Root, &c.Prefix, &c.TLSCert, &c.TLSKey,
	}
	if c.Spans != nil {
		spans := *c.Spans
		c.Spans = &spans
		paths = append(paths, &spans.Metrics)
	}
	for _, path := range paths {
		if *path == "" {
			continue
		}
		if strings.ContainsAny(*path, "\"\\$\r\n\x00") {
			wrong.add(`the path %q holds one of " \ $ or a line break, which nginx cannot take`, *path)
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			wrong.add("%v", err)
		}
		*path = absolute
	}
}

// listenAddress returns an address for nginx's directive listen.
func listenAddress(hostPort string) (string, error) {
	host, port, err := address.Split(hostPort)
	switch {
	case err != nil:
		return "", err
	case host == "":
		return "*:" + port, nil
	}
	return net.JoinHostPort(host, port), nil
}
