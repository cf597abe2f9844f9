// Package client is a Go client for the sluice API. A Client calls the public API on behalf of a buyer, an Admin calls
// the admin API, and VerifyWebhook authenticates webhooks.
//
// Requests are retried after 429, 502, 503 and 504 and after lost responses, until their context ends. Retries wait at
// least for Retry-After. A retried purchase returns the order of the first attempt, because every purchase has an
// Idempotency-Key.
//
// A sequence of events holds a connection until the loop over it ends. Each loop over a sequence starts again.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client calls the public API with the token of one buyer. It is safe for concurrent use; the zero value is not usable.
type Client struct{ conn }

// Option configures a Client or an Admin.
type Option func(*conn)

// conn is the part that Client and Admin share.
type conn struct {
	base    string
	token   func(context.Context) (string, error)
	http    *http.Client
	actor   string
	agent   string
	retry   Retry
	timeout time.Duration

	sleep  func(context.Context, time.Duration) error
	jitter func() float64 // in [0, 1)
	silent time.Duration  // an event stream without data for this long is reconnected
}

// Retry configures retries. A zero field has its default.
type Retry struct {
	// Attempts is the maximum number of attempts. The default is 8; 1 disables retries.
	Attempts int
	// InitialDelay is the upper bound of the delay before the second attempt. It doubles for each further attempt. The
	// default is 250 ms.
	InitialDelay time.Duration
	// MaxDelay is the upper bound of all delays, except those that Retry-After requires. The default is 10 s.
	MaxDelay time.Duration
}

// WithRetry configures retries.
func WithRetry(r Retry) Option { return func(c *conn) { c.retry = r } }

// WithToken sets the token that authenticates requests.
func WithToken(token string) Option {
	return WithTokenSource(func(context.Context) (string, error) { return token, nil })
}

// WithTokenSource calls token before each attempt, for tokens that expire. An error of token ends the call.
func WithTokenSource(token func(context.Context) (string, error)) Option {
	return func(c *conn) { c.token = token }
}

// WithHTTPClient sets the HTTP client. It should have no timeout: the context bounds a call, and event streams have no
// end. Redirects are never followed; h.CheckRedirect is ignored.
func WithHTTPClient(h *http.Client) Option { return func(c *conn) { c.http = h } }

// WithTimeout bounds one attempt; d must be positive, and the default is 10 s. WaitOrder adds the duration of its wait,
// and event streams have no such bound.
func WithTimeout(d time.Duration) Option { return func(c *conn) { c.timeout = d } }

// WithUserAgent sets the User-Agent header; the default is "sluice-client".
func WithUserAgent(agent string) Option { return func(c *conn) { c.agent = agent } }

// New returns a Client for the edge at base, such as https://shop.example. It returns an error if base is not an http
// or https address. It sends no request.
func New(base string, options ...Option) (*Client, error) {
	c, err := newConn(base, options)
	return &Client{c}, err
}

// As returns a copy of the client with the token of another buyer. Both share their connections.
func (c *Client) As(token string) *Client {
	other := *c
	WithToken(token)(&other.conn)
	return &other
}

func newConn(base string, options []Option) (conn, error) {
	c := conn{
		agent: "sluice-client", timeout: 10 * time.Second, silent: time.Minute,
		jitter: rand.Float64, sleep: sleep,
	}
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || strings.ContainsAny(base, "?#") {
		return c, fmt.Errorf("client: address %q: use the form http://host:port or https://host", base)
	}
	c.base = strings.TrimRight(base, "/")
	for _, o := range options {
		o(&c)
	}
	if c.http == nil {
		c.http = &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConns: 100, MaxIdleConnsPerHost: 32, IdleConnTimeout: 20 * time.Second,
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		}}
	}
	// The token must not be sent to another host.
	direct := *c.http
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &direct
	c.retry.Attempts = cmp.Or(max(c.retry.Attempts, 0), 8)
	c.retry.InitialDelay = cmp.Or(max(c.retry.InitialDelay, 0), 250*time.Millisecond)
	c.retry.MaxDelay = cmp.Or(max(c.retry.MaxDelay, 0), 10*time.Second)
	return c, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// ErrNoResponse reports that no response arrived: the connection failed, or the attempt timed out. The server may have
// processed the request.
var ErrNoResponse = errors.New("no response")
