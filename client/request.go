package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Request is one call, for those that have no method of their own.
type Request struct {
	Method string
	Path   string // such as /v1/sales, escaped
	Query  url.Values
	Body   any    // sent as JSON; nil for none
	Key    string // the Idempotency-Key; empty for none
	Once   bool   // is never repeated: doing it twice is not the same as doing it once

	hold   time.Duration // how long the server may hold the answer back
	header http.Header
}

// largestAnswer bounds what is read of an answer.
const largestAnswer = 64 << 20

// Do sends a request and decodes a successful answer into out, which may be nil. It repeats the request after 429, 502, 503, 504 and after no answer, unless the
// request says Once. The error is a *Problem when the server refused, wraps ErrNoAnswer when nothing came, and the context's when that ended first.
func (c *conn) Do(ctx context.Context, r Request, out any) error {
	_, err := c.send(ctx, r, out)
	return err
}

// send is Do; it also returns the answer's header.
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
		wait, again := c.again(err, attempt)
		switch {
		case err == nil:
			return header, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("client: %s %s: %w", r.Method, r.Path, errors.Join(ctx.Err(), err))
		case !again || r.Once || attempt >= c.retry.Attempts:
			return nil, err
		}
		if until, limited := ctx.Deadline(); limited && time.Until(until) < wait {
			return nil, err // what the server has said says more than that time is up
		}
		if stopped := c.sleep(ctx, wait); stopped != nil {
			return nil, fmt.Errorf("client: %s %s: %w", r.Method, r.Path, errors.Join(stopped, err))
		}
	}
}

// again says whether another attempt may end differently, and how long to wait for it. Waits are spread, or those who were turned away together come back together.
func (c *conn) again(err error, attempt int) (wait time.Duration, again bool) {
	most := c.retry.First << min(attempt-1, 20)
	if most > c.retry.Most || most <= 0 {
		most = c.retry.Most
	}
	wait = most/2 + time.Duration(c.jitter()*float64(most/2))
	if p, ok := errors.AsType[*Problem](err); ok {
		switch p.Status {
		case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			if p.RetryAfter > 0 {
				wait = p.RetryAfter + time.Duration(c.jitter()*float64(c.retry.First))
			}
			return wait, true
		}
		return 0, false
	}
	return wait, errors.Is(err, ErrNoAnswer)
}

func (c *conn) attempt(ctx context.Context, r Request, body []byte, out any) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout+r.hold)
	defer cancel()
	resp, err := c.open(ctx, r, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, largestAnswer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("client: %s %s: %w: %w", r.Method, r.Path, ErrNoAnswer, err)
	case resp.StatusCode >= 300:
		return nil, problemOf(resp, answer)
	case out == nil:
		return resp.Header, nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return nil, fmt.Errorf("client: %s %s: the answer is not sluice's: %w", r.Method, r.Path, err)
	}
	return resp.Header, nil
}

// open sends a request once. The caller closes the answer's body.
func (c *conn) open(ctx context.Context, r Request, body []byte) (*http.Response, error) {
	target := c.base + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
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
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("client: %s %s: %w: %w", r.Method, r.Path, ErrNoAnswer, err)
	}
	return resp, nil
}

// quoteKey writes a key as the header's structured field has it.
func quoteKey(key string) (string, error) {
	if len(key) > 255 {
		return "", fmt.Errorf("client: an Idempotency-Key has 255 characters at most, not %d", len(key))
	}
	quoted := []byte{'"'}
	for _, b := range []byte(key) {
		if b < ' ' || b > '~' {
			return "", errors.New("client: an Idempotency-Key has printable ASCII characters only")
		}
		if b == '"' || b == '\\' {
			quoted = append(quoted, '\\')
		}
		quoted = append(quoted, b)
	}
	return string(append(quoted, '"')), nil
}
