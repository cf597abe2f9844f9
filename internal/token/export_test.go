package token

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// CachedHeaders returns the number of cached headers.
func (s *Set) CachedHeaders() int { return len(*s.headers.Load()) }

// Private returns the names of keys with a private part.
func (s *Set) Private() []string { return s.private }

// FetchOnce fetches the keys of a URL once.
func FetchOnce(ctx context.Context, url string, transport http.RoundTripper) error {
	f, err := Open(url, "", Options{Transport: transport})
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

// Signed reports whether a token has valid segments, and a header and a signature for one of the keys of a JWK Set. Its
// claims may be any text. If not, the error is the reason.
func Signed(keys, raw string) (bool, error) {
	parsed, _, err := parseKeys([]byte(keys))
	if err != nil {
		return false, err
	}
	set, err := newSet("", parsed, Options{})
	if err != nil {
		return false, err
	}
	_, _, err = set.verify(raw, true)
	if err == nil || errors.Is(err, errUnknownKey) || errors.Is(err, errSignature) ||
		strings.Contains(err.Error(), "three segments") || strings.Contains(err.Error(), "not base64url") ||
		strings.HasPrefix(err.Error(), "header") {
		return err == nil, err
	}
	return true, nil
}
