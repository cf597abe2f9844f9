package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// Fetch requests a path from the backends, one after the other, and returns the first response with status 200.
// Backends that are considered down are tried last. Each attempt uses a connection of its own. The caller closes the
// body.
func (p *Proxy) Fetch(ctx context.Context, path string) (*http.Response, error) {
	all := p.upstreams
	first := int(p.turn.Add(1)) % len(all)
	var errs []error
	for _, suspect := range [...]bool{false, true} {
		for i := range all {
			u := all[(first+i)%len(all)]
			if u.suspect.Load() != suspect {
				continue
			}
			resp, err := u.fetch(ctx, path)
			if err == nil {
				return resp, nil
			}
			if errs = append(errs, err); ctx.Err() != nil {
				return nil, errors.Join(errs...)
			}
		}
	}
	return nil, errors.Join(errs...)
}

// fetch requests a path over a new connection. The caller closes the body.
func (u *upstream) fetch(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return u.dial(ctx, u.address) },
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: readerSize,
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.address, err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("%s: status %d", u.address, resp.StatusCode)
	}
	return resp, nil
}
