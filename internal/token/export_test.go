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

// Verifies reports whether a signature of a text is valid for a JWK.
func Verifies(jwk, text string, signature []byte) (bool, error) {
	keys, _, err := parseKeys([]byte(`{"keys":[` + jwk + `]}`))
	if err != nil {
		return false, err
	}
	key := newVerifyKey(keys[0].name, keys[0].public)
	return key.verify(key.pool.Get().(*scratch), text, encoded(signature)), nil
}
