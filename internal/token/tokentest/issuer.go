// Package tokentest provides keys, and valid and invalid tokens for them, for the tests of all verifiers:
// internal/token, the gateway, the backend and the nginx edge.
package tokentest

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"sluice/internal/token"
)

// Kids of the keys of an Issuer. The secret has none.
const (
	First  = "2026-10"
	Second = "2026-11"
	Edward = "ed 1"
	Rivest = "rs/1"
)

// Issuer has a secret without a kid, two secrets with one, an Ed25519 key and an RSA key.
type Issuer struct {
	Secret  string
	Keys    []byte // JWK Set for verifiers: everything but the secret
	Secrets map[string][]byte
	Ed25519 ed25519.PrivateKey
	RSA     *rsa.PrivateKey
}

// New returns the same Issuer for all tests of a process, because generating RSA keys takes long.
var New = sync.OnceValue(func() *Issuer {
	w := &Issuer{Secret: "a secret of the tests, of 32 bytes at least", Secrets: map[string][]byte{}}
	var keys []any
	for _, kid := range []string{First, Second} {
		text := must(token.Generate(token.HS256, kid))
		jwk := member(text)
		w.Secrets[kid] = bytes(jwk, "k")
		keys = append(keys, jwk)
	}
	eddsa, rs := must(token.Generate(token.EdDSA, Edward)), must(token.Generate(token.RS256, Rivest))
	w.Ed25519 = ed25519.NewKeyFromSeed(bytes(member(eddsa), "d"))
	jwk := member(rs)
	w.RSA = &rsa.PrivateKey{
		PublicKey: rsa.PublicKey{N: new(big.Int).SetBytes(bytes(jwk, "n")), E: 65537},
		D:         new(big.Int).SetBytes(bytes(jwk, "d")),
		Primes:    []*big.Int{new(big.Int).SetBytes(bytes(jwk, "p")), new(big.Int).SetBytes(bytes(jwk, "q"))},
	}
	w.RSA.Precompute()
	for _, v := range members(must(token.Public(eddsa, rs))) {
		keys = append(keys, v)
	}
	w.Keys = must(json.Marshal(map[string]any{"keys": keys}))
	return w
})

// File writes the keys to a temporary file.
func (w *Issuer) File(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, w.Keys, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// B64 is the encoding of token segments.
var B64 = base64.RawURLEncoding

// Segments encodes a header and claims, without a signature.
func Segments(header, claims string) string {
	return B64.EncodeToString([]byte(header)) + "." + B64.EncodeToString([]byte(claims))
}

// HS signs a text with a secret.
func HS(text string, secret []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + B64.EncodeToString(mac.Sum(nil))
}

// Ed signs a text with the Ed25519 key.
func (w *Issuer) Ed(text string) string {
	return text + "." + B64.EncodeToString(ed25519.Sign(w.Ed25519, []byte(text)))
}

// RS signs a text with the RSA key.
func (w *Issuer) RS(text string) string {
	digest := sha256.Sum256([]byte(text))
	return text + "." + B64.EncodeToString(must(rsa.SignPKCS1v15(rand.Reader, w.RSA, crypto.SHA256, digest[:])))
}

// Sign signs a text with the key for alg and kid. Without such a key it uses the secret.
func (w *Issuer) Sign(alg, kid, text string) string {
	switch {
	case alg == token.EdDSA:
		return w.Ed(text)
	case alg == token.RS256:
		return w.RS(text)
	case w.Secrets[kid] != nil:
		return HS(text, w.Secrets[kid])
	}
	return HS(text, []byte(w.Secret))
}

func member(set []byte) map[string]any { return members(set)[0] }

func members(set []byte) []map[string]any {
	var s struct{ Keys []map[string]any }
	if err := json.Unmarshal(set, &s); err != nil {
		panic(err)
	}
	return s.Keys
}

func bytes(jwk map[string]any, name string) []byte {
	return must(B64.DecodeString(jwk[name].(string)))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
