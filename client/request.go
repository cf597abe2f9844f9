package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Request is a request for Do.
type Request struct {
	Method  string
	Path    string // such as /v1/sales, escaped
	Query   url.Values
	Body    any    // sent as JSON; nil for none
	Key     string // the Idempotency-Key; empty for none
	NoRetry bool   // for requests that are not idempotent

	hold   time.Duration // added to the timeout, because the server delays the response
	header http.Header
}

// maxResponse is the maximum size of a response body in bytes.
const maxResponse = 64 << 20

// Do sends a request and decodes the body of a successful response into out, which may be nil. It retries after
// 429, 502, 503, 504 and after a lost response, unless r.NoRetry is set. The error is a *Problem for an error response
// or a redirect, wraps ErrNoResponse if no response arrived, and wraps the error of the context if it ended first. A
// body of more than 64 MiB is an error.
func (c *conn) Do(ctx context.Context, r Request, out any) error {
	_, err := c.send(ctx, r, out)
	return err
}

func get[T any](ctx context.Context, c *conn, path string) (out T, err error) {
	err = c.Do(ctx, Request{Method: http.MethodGet, Path: path}, &out)
	return out, err
}

func post[T any](ctx context.Context, c *conn, path string, body any) (out T, err error) {
	err = c.Do(ctx, Request{Method: http.MethodPost, Path: path, Body: body}, &out)
	return out, err
}

// send is Do; it also returns the header of the response.
func (c *conn) send(ctx context.Context, r Request, out any) (http.Header, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = json.Marshal(r.Body); err != nil {
			return nil, fmt.Errorf("client: %s %s: %w", r.Method, r.Path, err)
		}
	}
	for attempt := 1; ; attempt++ {
		header, err := c.attempt(ctx, r, body, out)
		wait, retry := c.retryDelay(err, attempt)
		switch {
		case err == nil:
			return header, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("client: %s %s: %w: %w", r.Method, r.Path, ctx.Err(), err)
		case !retry || r.NoRetry || attempt >= c.retry.Attempts:
			return nil, err
		}
		if until, limited := ctx.Deadline(); limited && time.Until(until) < wait {
			return nil, err // more specific than a timeout
		}
		if stopped := c.sleep(ctx, wait); stopped != nil {
			return nil, fmt.Errorf("client: %s %s: %w: %w", r.Method, r.Path, stopped, err)
		}
	}
}

// retryDelay reports whether a retry is useful after err, and the delay before it. Delays are jittered, so that clients
// that were rejected together do not retry together.
func (c *conn) retryDelay(err error, attempt int) (wait time.Duration, retry bool) {
	most := c.retry.InitialDelay << min(attempt-1, 20)
	if most > c.retry.MaxDelay || most <= 0 {
		most = c.retry.MaxDelay
	}
	wait = most/2 + time.Duration(c.jitter()*float64(most/2))
	p, ok := errors.AsType[*Problem](err)
	switch {
	case !ok:
		return wait, errors.Is(err, ErrNoResponse)
	case !isTemporary(p.Status):
		return 0, false
	case p.RetryAfter > 0:
		wait = p.RetryAfter + time.Duration(c.jitter()*float64(c.retry.InitialDelay))
	}
	return wait, true
}

// isTemporary reports whether a request with this status of its response is retried.
func isTemporary(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func (c *conn) attempt(ctx context.Context, r Request, body []byte, out any) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout+r.hold)
	defer cancel()
	resp, err := c.open(ctx, r, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case len(content) > maxResponse:
		return nil, fmt.Errorf("client: %s %s: the response has more than %d MiB", r.Method, r.Path, maxResponse>>20)
	case err != nil && !isTemporary(resp.StatusCode): // the body of a temporary error is not needed
		return nil, fmt.Errorf("client: %s %s: %w: %w", r.Method, r.Path, ErrNoResponse, err)
	case resp.StatusCode >= 300:
		return nil, problemOf(resp, content)
	case out == nil:
		return resp.Header, nil
	}
	if err := json.Unmarshal(content, out); err != nil {
		return nil, fmt.Errorf("client: %s %s: decode the response: %w", r.Method, r.Path, err)
	}
	return resp.Header, nil
}

// open sends a request once. The caller must close the body of the response.
func (c *conn) open(ctx context.Context, r Request, body []byte) (*http.Response, error) {
	target := c.base + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	maps.Copy(req.Header, r.header)
	req.Header.Set("User-Agent", c.agent)
	if c.actor != "" {
		req.Header.Set("X-Actor", c.actor)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.Key != "" {
		quoted, err := quoteKey(r.Key)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Idempotency-Key", quoted)
	}
	if c.token != nil {
		token, err := c.token(ctx)
		if err != nil {
			return nil, fmt.Errorf("client: token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for name, values := range req.Header {
		if strings.ContainsFunc(values[0], func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return nil, fmt.Errorf("client: the value of the header %s has a control character", name)
		}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("client: %s %s: %w: %w", r.Method, r.Path, ErrNoResponse, err)
	}
	return resp, nil
}

// quoteKey returns a key as a structured field string (RFC 8941).
func quoteKey(key string) (string, error) {
	if len(key) > 255 {
		return "", fmt.Errorf("client: the Idempotency-Key has %d characters, the maximum is 255", len(key))
	}
	quoted := []byte{'"'}
	for _, b := range []byte(key) {
		if b < ' ' || b > '~' {
			return "", errors.New("client: the Idempotency-Key must consist of printable ASCII characters")
		}
		if b == '"' || b == '\\' {
			quoted = append(quoted, '\\')
		}
		quoted = append(quoted, b)
	}
	return string(append(quoted, '"')), nil
}
