package token

import (
	"context"
	"net/http"
)

// CachedHeaders returns the number of cached headers.
func (s *Set) CachedHeaders() int { return len(*s.headers.Load()) }

// FetchOnce fetches the keys of a URL once.
func FetchOnce(ctx context.Context, url string, transport http.RoundTripper) error {
	f, err := OpenWith(url, "", Options{Transport: transport})
	if err != nil {
		return err
	}
	return f.remote.once(ctx, f.useFetched)
}
