package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// holders fetches the list of who may hold an order of a sale from the first backend that has it. It is a known.Source.
func (g *Gateway) holders(ctx context.Context, sale string) (header string, body io.ReadCloser, err error) {
	all := g.balancer.upstreams
	first := int(g.balancer.turn.Load()) % len(all)
	var errs []error
	for _, suspect := range [...]bool{false, true} {
		for i := range all {
			u := all[(first+i)%len(all)]
			if u.suspect.Load() != suspect {
				continue
			}
			header, body, err := u.holders(ctx, sale)
			if err == nil {
				return header, body, nil
			}
			if errs = append(errs, err); ctx.Err() != nil {
				return "", nil, errors.Join(errs...)
			}
		}
	}
	return "", nil, errors.Join(errs...)
}

// holders asks this backend, over a connection of its own: lists are few, and may be long.
func (u *upstream) holders(ctx context.Context, sale string) (header string, body io.ReadCloser, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/.sluice/sales/"+sale+"/holders", nil)
	if err != nil {
		return "", nil, err
	}
	transport := &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return u.dial(ctx) },
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: readerSize,
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", u.name, err)
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return "", nil, fmt.Errorf("%s: status %d", u.name, resp.StatusCode)
	}
	return resp.Header.Get("Sluice-Holders"), resp.Body, nil
}
