package token

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"sluice/internal/loop"
)

// Times of a JWK Set by URL.
const (
	fetchTimeout = 5 * time.Second  // of one fetch, with redirects
	refreshEvery = 5 * time.Minute  // between fetches; up to a tenth less, so that many processes do not fetch together
	retryEvery   = 30 * time.Second // after a failed fetch
	unknownEvery = 10 * time.Second // between fetches for tokens of unknown keys, after a burst
	unknownWait  = 2 * time.Second  // how long a token of an unknown key waits for a fetch
	startWait    = 30 * time.Second // how long a start waits for the first set
)

const (
	unknownBurst = 3    // fetches for tokens of unknown keys without a pause
	maxWaiting   = 1000 // tokens that wait for a fetch; further ones are rejected immediately
	maxRedirects = 3
	maxHeader    = 64 << 10 // bytes
)

// IsURL reports whether a source of token keys is a URL rather than a file.
func IsURL(source string) bool { return strings.Contains(source, "://") }

// remote fetches a JWK Set and limits the rate of fetches.
type remote struct {
	url    string
	client *http.Client
	wake   loop.Wake // of the loop that fetches

	mu      sync.Mutex
	spent   time.Time     // time at which all fetches of the burst are available again
	done    chan struct{} // closed at the end of the requested or running fetch; nil: none
	waiting int
}

// newRemote returns an error if the URL is not allowed. transport may be nil.
func newRemote(raw string, transport http.RoundTripper) (*remote, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, fmt.Errorf("%q: want https://host/path of a JWK Set, without a user or a fragment", raw)
	}
	if err := checkScheme(u); err != nil {
		return nil, fmt.Errorf("%s: %w", raw, err)
	}
	if transport == nil {
		transport = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2:      true,
			DisableKeepAlives:      true, // the next fetch is minutes away
			MaxResponseHeaderBytes: maxHeader,
		}
	}
	client := &http.Client{Transport: transport, Timeout: fetchTimeout, CheckRedirect: checkRedirect}
	return &remote{url: raw, client: client, wake: loop.NewWake()}, nil
}

// checkScheme allows https, and http to this machine only, because a set that is changed in transit lets an attacker
// sign tokens.
func checkScheme(u *url.URL) error {
	switch {
	case u.Scheme == "https":
		return nil
	case u.Scheme != "http":
		return fmt.Errorf("%s:// is not allowed: want https://", u.Scheme)
	case u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback():
		return nil
	}
	return errors.New("http:// is allowed to this machine only (127.0.0.1, ::1, localhost): want https://")
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if req.URL.Scheme != via[0].URL.Scheme {
		return fmt.Errorf("redirected from %s:// to %s://, which is not followed", via[0].URL.Scheme, req.URL.Scheme)
	}
	if len(via) > maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	return checkScheme(req.URL)
}

// fetch returns the text of the set. It reads at most one byte more than the size limit. Its error is a single line
// that names the URL.
func (r *remote) fetch(ctx context.Context) ([]byte, error) {
	text, err := r.get(ctx)
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
		if wrapped.Timeout() {
			err = fmt.Errorf("no complete response within %s", fetchTimeout)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.url, err)
	}
	return text, nil
}

func (r *remote) get(ctx context.Context) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/jwk-set+json, application/json")
	req.Header.Set("User-Agent", "sluice")
	resp, err := r.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d, want 200", resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the response: %w", err)
	}
	return text, nil
}

// begin marks the start of a fetch. The caller calls end after the keys of the fetch are in use.
func (r *remote) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done == nil {
		r.done = make(chan struct{})
	}
}

func (r *remote) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.done)
	r.done = nil
}

// await requests a fetch and waits for its end, for at most unknownWait. It reports whether a fetch has ended. It
// returns false immediately if there were too many fetches, or if too many tokens wait.
func (r *remote) await() bool {
	done := r.enter()
	if done == nil {
		return false
	}
	defer r.leave()
	select {
	case <-done:
		return true
	case <-time.After(unknownWait):
		return false
	}
}

func (r *remote) enter() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting >= maxWaiting {
		return nil
	}
	if r.done == nil {
		now := time.Now()
		if r.untilNext(now) > 0 {
			return nil
		}
		if r.spent.Before(now) {
			r.spent = now
		}
		r.spent = r.spent.Add(unknownEvery)
		r.done = make(chan struct{})
		r.wake.Up()
	}
	r.waiting++
	return r.done
}

func (r *remote) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting--
}

// next returns the time until a token of an unknown key can cause a fetch.
func (r *remote) next() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.untilNext(time.Now())
}

func (r *remote) untilNext(now time.Time) time.Duration {
	return max(0, max(0, r.spent.Sub(now))-(unknownBurst-1)*unknownEvery)
}

// run fetches until ctx ends: periodically and on request. use takes the result.
func (r *remote) run(ctx context.Context, use func([]byte, error) error) {
	wait := refreshEvery
	for {
		select {
		case <-ctx.Done():
		case <-time.After(wait - rand.N(wait/10)):
		case <-r.wake:
		}
		if ctx.Err() != nil {
			return
		}
		if wait = refreshEvery; r.once(ctx, use) != nil {
			wait = retryEvery
		}
	}
}

// once fetches the set and passes the result to use, whose error it returns.
func (r *remote) once(ctx context.Context, use func([]byte, error) error) error {
	r.begin()
	defer r.end()
	text, err := r.fetch(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return use(text, err)
}
