// Package outbound is the HTTP client for addresses that strangers have named: webhook endpoints and push services. It connects to public addresses
// only, or to private ones that the operator has allowed, and judges the address of the very connection that it makes, so a name that resolves to
// something else a moment later gains nothing. What an answer may cost is bounded: its time, its headers and its body.
//
// It never follows redirects, never asks a proxy of the environment, never decompresses, and keeps no cookies.
package outbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// ErrRefused says that this client does not go there: the URL or the address is not allowed. Trying again cannot help, unless the name comes to mean another address.
var ErrRefused = errors.New("not allowed")

// Config tunes a Client. Zero fields take the defaults named here.
type Config struct {
	AllowPrivate []netip.Prefix // networks that may be reached though they are not public, also by http://; none
	Timeout      time.Duration  // of a whole request, from the look-up of the name to the last byte of the answer that is read; 15 s
	MaxBody      int64          // bytes of an answer's body that are read, the rest is never fetched; 64 KiB
	PerHost      int            // connections to one host and port at once; a request above that waits, and its time runs; 64
	UserAgent    string         // of requests that have none; "sluice"

	RootCAs  *x509.CertPool // whom certificates are believed from; nil: whom the system believes
	Resolver *net.Resolver  // nil: the system's
}

func (c Config) withDefaults() Config {
	if c.Timeout <= 0 {
		c.Timeout = 15 * time.Second
	}
	if c.MaxBody <= 0 {
		c.MaxBody = 64 << 10
	}
	if c.PerHost <= 0 {
		c.PerHost = 64
	}
	if c.UserAgent == "" {
		c.UserAgent = "sluice"
	}
	return c
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	cfg        Config
	guard      *ssrf.Guardian // what https may reach
	private    *ssrf.Guardian // what http may reach: allowed networks only
	tls, plain *http.Transport
}

// New makes a Client. It connects to nothing yet.
func New(cfg Config) *Client {
	c := &Client{cfg: cfg.withDefaults()}
	var v4, v6 []netip.Prefix
	for _, p := range cfg.AllowPrivate {
		if p.Addr().Is4() {
			v4 = append(v4, p)
		} else {
			v6 = append(v6, p)
		}
	}
	allowed := []ssrf.Option{ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(v4...), ssrf.WithAllowedV6Prefixes(v6...)}
	c.guard = ssrf.New(append(allowed, ssrf.WithDeniedV4Prefixes(azureHost))...)
	c.private = ssrf.New(append(allowed, ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("0.0.0.0/0")), ssrf.WithDeniedV6Prefixes(netip.MustParsePrefix("::/0")))...)
	c.tls, c.plain = c.transport(c.guard), c.transport(c.private)
	return c
}

// azureHost is a public address that every virtual machine of Azure reaches its host by.
var azureHost = netip.MustParsePrefix("168.63.129.16/32")

const (
	maxHeader    = 64 << 10
	idleFor      = 30 * time.Second
	maxIdle      = 256
	idlePerHost  = 32 // as many as one endpoint of webhooks is sent at once: what is closed in between is a handshake for the next
	dialTimeout  = 10 * time.Second
	tlsHandshake = 10 * time.Second
)

func (c *Client) transport(guard *ssrf.Guardian) *http.Transport {
	dialer := &net.Dialer{
		Timeout: dialTimeout, Resolver: c.cfg.Resolver,
		// Called with the address that is connected to, after the name was resolved, for each address that is tried.
		Control: func(network, address string, raw syscall.RawConn) error {
			if err := guard.Safe(network, address, raw); err != nil {
				return fmt.Errorf("the address %s is %w", address, ErrRefused)
			}
			at, err := netip.ParseAddrPort(address)
			if err != nil || !portAllowed(at.Port()) {
				return fmt.Errorf("the port of %s is %w", address, ErrRefused)
			}
			return nil
		},
	}
	return &http.Transport{
		Proxy:                  nil, // whatever the environment says: a proxy would resolve names by itself
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: c.cfg.RootCAs},
		TLSHandshakeTimeout:    tlsHandshake,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		MaxConnsPerHost:        c.cfg.PerHost,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleFor,
	}
}

// Do sends a request and reads its answer: the body of what it returns is in memory, at most Config.MaxBody bytes of it, and need not be closed. A redirect is
// an answer like any other. An error is one line, without the URL, which may hold a secret; it wraps ErrRefused where this client does not go.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	if err := c.check(req.URL); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(req.Context(), c.cfg.Timeout, fmt.Errorf("no whole answer within %s", c.cfg.Timeout))
	defer cancel()
	req = req.Clone(ctx)
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", c.cfg.UserAgent)
	}
	through := c.tls
	if req.URL.Scheme == "http" {
		through = c.plain
	}
	resp, err := through.RoundTrip(req)
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	defer resp.Body.Close()                               // what is left of a longer body is not fetched: the connection goes
	if resp.StatusCode == http.StatusSwitchingProtocols { // what follows is no HTTP, and no timeout of HTTP ends it
		return nil, errors.New("outbound: the answer is 101: nobody asked for another protocol")
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.cfg.MaxBody))
	if err != nil {
		return nil, c.failed(ctx, err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// failed says what went wrong, and that it was time where it was.
func (c *Client) failed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, ErrRefused) {
		err = cause
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("outbound: %w", err)
}

// Close gives back idle connections.
func (c *Client) Close() {
	c.tls.CloseIdleConnections()
	c.plain.CloseIdleConnections()
}
