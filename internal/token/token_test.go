package token

import (
	"encoding/base64"
	"errors"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const secret = "0123456789abcdef0123456789abcdef"

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func key(t testing.TB, at time.Time) *Key {
	t.Helper()
	k, err := NewKeyAt(secret, func() time.Time { return at })
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func segments(header, claims string) string { // signed with the secret
	b := base64.RawURLEncoding
	signed := b.EncodeToString([]byte(header)) + "." + b.EncodeToString([]byte(claims))
	sig, err := jwt.SigningMethodHS256.Sign(signed, []byte(secret))
	if err != nil {
		panic(err)
	}
	return signed + "." + b.EncodeToString(sig)
}

func TestSignedTokenIsValidUntilItExpires(t *testing.T) {
	signed, err := key(t, noon).Sign("ann", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if sub, err := key(t, noon.Add(59*time.Second)).Verify(signed); err != nil || sub != "ann" {
		t.Fatalf("%q, %v", sub, err)
	}
	if _, err := key(t, noon.Add(time.Minute)).Verify(signed); !errors.Is(err, ErrInvalid) {
		t.Fatalf("expired: %v", err)
	}
}
