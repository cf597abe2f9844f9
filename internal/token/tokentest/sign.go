package tokentest

import (
	"testing"
	"time"

	"sluice/internal/token"
)

// Key returns the key of a shared secret.
func Key(t testing.TB, secret string) *token.Key {
	t.Helper()
	key, err := token.NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Sign returns a token of a buyer that is signed with a shared secret and expires after ttl.
func Sign(t testing.TB, secret, buyer string, ttl time.Duration) string {
	t.Helper()
	return must(Key(t, secret).Sign(buyer, ttl))
}

// Generate returns a new private key as a JWK Set, and a token of the buyer ann that it signed and that expires after
// an hour.
func Generate(alg, kid string) (private []byte, ann string) {
	private = must(token.Generate(alg, kid))
	return private, SignBy(private)
}

// SignBy returns a token of the buyer ann that is signed with a private key and expires after an hour.
func SignBy(private []byte) string {
	return must(must(token.NewSigner(private, "")).Sign("ann", time.Hour))
}
