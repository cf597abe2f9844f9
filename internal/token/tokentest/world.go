// Package tokentest is a set of keys, and tokens good and bad for it, that every verifier is tried with: internal/token itself, the gateway, the backend
// and the nginx edge.
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

// Kids of the keys of a World. The secret has none.
const (
	First  = "2026-10"
	Second = "2026-11"
	Edward = "ed 1"
	Rivest = "rs/1"
)

// World is what an issuer knows: a secret without a kid, two secrets with one, an Ed25519 and an RSA key.
type World struct {
	Secret  string
	Keys    []byte // JWK Set for verifiers: everything but the secret
	Secrets map[string][]byte
	Ed25519 ed25519.PrivateKey
	RSA     *rsa.PrivateKey
}

// New is the same world for all tests of a process: RSA keys take long to make.
var New = sync.OnceValue(func() *World {
	w := &World{Secret: "a secret of the tests, of 32 bytes at least", Secrets: map[string][]byte{}}
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

// File writes the keys to a file of the test's.
func (w *World) File(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	if err := os.WriteFile(path, w.Keys, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// B64 is how tokens spell bytes.
var B64 = base64.RawURLEncoding

// Segments spells a header and claims, without a signature.
func Segments(header, claims string) string {
	return B64.EncodeToString([]byte(header)) + "." + B64.EncodeToString([]byte(claims))
}

// HS signs any text with any secret.
func HS(text string, secret []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return text + "." + B64.EncodeToString(mac.Sum(nil))
}

// Ed signs any text with the Ed25519 key.
func (w *World) Ed(text string) string {
	return text + "." + B64.EncodeToString(ed25519.Sign(w.Ed25519, []byte(text)))
}

// RS signs any text with the RSA key.
func (w *World) RS(text string) string {
	digest := sha256.Sum256([]byte(text))
	return text + "." + B64.EncodeToString(must(rsa.SignPKCS1v15(rand.Reader, w.RSA, crypto.SHA256, digest[:])))
}

// Sign signs as the header that alg and kid stand in ought to be signed; what nobody ought to sign so is signed with the secret.
func (w *World) Sign(alg, kid, text string) string {
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
