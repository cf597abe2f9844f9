// Package outbound is the HTTP client for untrusted URLs: webhook endpoints and push services. It prevents
// server-side request forgery: it connects to public addresses and explicitly allowed networks only, and checks the
// address of each connection after the name was resolved. The time, the headers and the body of a response are
// limited.
//
// It does not follow redirects, use proxies of the environment, decompress, or store cookies.
package outbound

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// ErrRefused reports that the URL or the address is not allowed. A retry can succeed only if the name resolves to
// another address.
var ErrRefused = errors.New("not allowed")

// Config configures a Client. Zero fields mean the defaults.
type Config struct {
	AllowPrivate []netip.Prefix // private networks that may be reached, also by http://; default none
	Setting      string         // the flag or variable of AllowPrivate, for errors; default: not named
	Timeout      time.Duration  // of a request, including the DNS lookup and the response; default 15 s
	MaxBody      int64          // bytes of a response body; the rest is not read; default 64 KiB
	PerHost      int            // connections to a host and port; further requests wait; default 64

	RootCAs  *x509.CertPool // default: those of the system
	Resolver *net.Resolver  // default: that of the system
}

// Client sends requests. Create it with New. Safe for concurrent use.
type Client struct {
	cfg        Config
	guard      *ssrf.Guardian // addresses for https
	private    *ssrf.Guardian // addresses for http: allowed networks only
	tls, plain *http.Transport
}

// New returns a Client.
func New(cfg Config) *Client {
	cfg.Timeout = cmp.Or(cfg.Timeout, 15*time.Second)
	cfg.MaxBody = cmp.Or(cfg.MaxBody, 64<<10)
	cfg.PerHost = cmp.Or(cfg.PerHost, 64)
	c := &Client{cfg: cfg}
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
	c.private = ssrf.New(append(allowed,
		ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("0.0.0.0/0")),
		ssrf.WithDeniedV6Prefixes(netip.MustParsePrefix("::/0")))...)
	c.tls, c.plain = c.transport(c.guard), c.transport(c.private)
	return c
}

// azureHost is a public address at which virtual machines of Azure reach their host.
var azureHost = netip.MustParsePrefix("168.63.129.16/32")

const (
	maxHeader    = 64 << 10
	idleFor      = 30 * time.Second
	maxIdle      = 256
	idlePerHost  = 32 // concurrent deliveries to a webhook endpoint; with fewer, each request may need a handshake
	dialTimeout  = 10 * time.Second
	tlsHandshake = 10 * time.Second
)

func (c *Client) transport(guard *ssrf.Guardian) *http.Transport {
	dialer := &net.Dialer{
		Timeout: dialTimeout, Resolver: c.cfg.Resolver,
		// The dialer calls it for each address that it tries, after the name was resolved.
		Control: func(network, address string, raw syscall.RawConn) error {
			if err := guard.Safe(network, address, raw); err != nil {
				return fmt.Errorf("address %s is %w", address, ErrRefused)
			}
			at, err := netip.ParseAddrPort(address)
			if err != nil || !portAllowed(at.Port()) {
				return fmt.Errorf("port of %s is %w", address, ErrRefused)
			}
			return nil
		},
	}
	return &http.Transport{
		Proxy:                  nil, // a proxy resolves names itself
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

// Do sends a request and reads the response. The body is in memory, limited to Config.MaxBody bytes, and need not be
// closed. A redirect is returned like any other response. Errors are a single line without the URL, which may contain
// a secret; they wrap ErrRefused if the URL or address is not allowed.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	if err := c.check(req.URL); err != nil {
		return nil, fmt.Errorf("%w: the URL %w", ErrRefused, err)
	}
	late := fmt.Errorf("no complete response within %s", c.cfg.Timeout)
	ctx, cancel := context.WithTimeoutCause(req.Context(), c.cfg.Timeout, late)
	defer cancel()
	req = req.Clone(ctx)
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "sluice")
	}
	through := c.tls
	if req.URL.Scheme == "http" {
		through = c.plain
	}
	resp, err := through.RoundTrip(req)
	if err != nil {
		return nil, failed(ctx, err)
	}
	defer resp.Body.Close() // closes the connection if the body was not read completely
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// No HTTP timeout applies to another protocol.
		return nil, errors.New("unexpected status 101")
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.cfg.MaxBody))
	if err != nil {
		return nil, failed(ctx, err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// failed returns the error of a request; if the request timed out, that cause.
func failed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, ErrRefused) {
		err = cause
	}
	return err
}

// Close closes idle connections.
func (c *Client) Close() {
	c.tls.CloseIdleConnections()
	c.plain.CloseIdleConnections()
}

// maxRetryAfter bounds how long an endpoint can delay the next request.
const maxRetryAfter = time.Hour

// RetryAfter returns the delay that a Retry-After header requests, in seconds or as a date: at most an hour; 0 if the
// header is missing, malformed, or in the past.
func RetryAfter(header string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
