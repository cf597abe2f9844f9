package token

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/internal/strictjson"
)

// Explain returns an error that explains why a token is rejected, or nil for a valid one. Unlike the errors of Verify,
// its errors quote the token, so only the token's holder should see them. It does not use the caches.
func (s *Set) Explain(raw string) error {
	_, _, err := s.verify(raw, false)
	if err == nil {
		return nil
	}
	header, claims := unverified(raw)
	switch {
	case errors.Is(err, errUnknownKey):
		return fmt.Errorf("%w: it is signed with alg %s, kid %s; the keys are: %s",
			err, quoted(header["alg"]), quoted(header["kid"]), strings.Join(s.Names(), ", "))
	case errors.Is(err, errExpired):
		return fmt.Errorf("%w: exp is %s, now it is %s", err, instant(claims["exp"]), s.now().UTC().Format(time.RFC3339))
	case errors.Is(err, errNotYet):
		return fmt.Errorf("%w: nbf is %s, now it is %s", err, instant(claims["nbf"]), s.now().UTC().Format(time.RFC3339))
	case errors.Is(err, errIssuer):
		return fmt.Errorf("%w: iss is %s, want %q", err, quoted(claims["iss"]), s.expect.Issuer)
	case errors.Is(err, errAudience):
		return fmt.Errorf("%w: aud is %s, want %q", err, quoted(claims["aud"]), s.expect.Audience)
	case errors.Is(err, errSignature):
		hint := ""
		if header["kid"] == nil && header["alg"] == HS256 {
			hint = ": the issuer needs the same secret, as text and not decoded from base64"
		}
		return fmt.Errorf("%w: the key with alg %s, kid %s has not signed this text%s",
			err, quoted(header["alg"]), quoted(header["kid"]), hint)
	}
	return err
}

// unverified returns the header and the claims of a token without verifying them. Unreadable ones are nil.
func unverified(raw string) (header, claims map[string]any) {
	segments := strings.Split(raw, ".")
	read := func(i int) map[string]any {
		if i >= len(segments) {
			return nil
		}
		text, err := decodeStrictly(nil, segments[i])
		if err != nil {
			return nil
		}
		object, err := strictjson.Object(text)
		if err != nil {
			return nil
		}
		return object
	}
	return read(0), read(1)
}

// quoted returns a member as JSON, or "none".
func quoted(v any) string {
	if v == nil {
		return "none"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "unreadable"
	}
	return string(text)
}

// instant returns the time of a claim.
func instant(v any) string {
	var seconds float64
	if timeOf(map[string]any{"": v}, "", &seconds) != nil {
		return quoted(v)
	}
	return date(seconds).UTC().Format(time.RFC3339)
}
