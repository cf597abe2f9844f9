// Package client talks to sluice over HTTP: buyers' calls through an edge (Client), and operators' (Operator). It repeats by itself what is safe to repeat,
// for as long as its context lets it: after 429 and 503 as their Retry-After says, and after an answer that never came. Buying is safe to repeat because every
// purchase carries an Idempotency-Key, so that a repeated one gets the order of the first.
package client

import (
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

// Client is a buyer's, of one token. It is safe for concurrent use; the zero value is not usable.
type Client struct{ conn }

// Option changes how a Client or an Operator works.
type Option func(*conn)

// conn is what both have in common.
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
	silent time.Duration  // how long an event stream may say nothing
}

// Retry says how what failed is repeated. The zero value of a field is its default.
type Retry struct {
	Attempts int           // all in all; 0: 8. 1 never repeats anything
	First    time.Duration // the longest pause before the second attempt; it doubles with each; 0: 250 ms
	Most     time.Duration // the longest pause of our own; a server's Retry-After may be longer; 0: 10 s
}

// WithRetry changes how what failed is repeated.
func WithRetry(r Retry) Option { return func(c *conn) { c.retry = r } }

// WithToken is the token of the buyer.
func WithToken(token string) Option {
	return WithTokens(func(context.Context) (string, error) { return token, nil })
}

// WithTokens asks for a token before each attempt: for tokens that expire while one waits. Its error ends the call.
func WithTokens(token func(context.Context) (string, error)) Option {
	return func(c *conn) { c.token = token }
}

// WithHTTP sends by another client. It should have no timeout of its own: calls end with their context, and event streams last.
func WithHTTP(h *http.Client) Option { return func(c *conn) { c.http = h } }

// WithTimeout bounds one attempt; the default is 10 s. Looking at an order with a wait takes longer by that wait.
func WithTimeout(d time.Duration) Option { return func(c *conn) { c.timeout = d } }

// WithUserAgent says who asks, in the server's logs.
func WithUserAgent(agent string) Option { return func(c *conn) { c.agent = agent } }

// New makes a Client of the address of an edge, such as https://shop.example. The error says what is wrong with it; nothing is sent.
func New(base string, options ...Option) (*Client, error) {
	c, err := newConn(base, options)
	return &Client{c}, err
}

// As is the same client for another buyer's token. Both share their connections.
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
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return c, fmt.Errorf("client: %q: want http://host:port or https://host", base)
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
	// A token goes to nobody but who it was given for.
	direct := *c.http
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &direct
	if c.retry.Attempts <= 0 {
		c.retry.Attempts = 8
	}
	if c.retry.First <= 0 {
		c.retry.First = 250 * time.Millisecond
	}
	if c.retry.Most <= 0 {
		c.retry.Most = 10 * time.Second
	}
	return c, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// ErrNoAnswer says that no answer came: nobody listens, the connection broke, or it took too long. Whether the request had its effect is not known.
var ErrNoAnswer = errors.New("no answer")
