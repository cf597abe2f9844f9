// Package tokentest provides keys, and valid and invalid tokens for them, for the tests of all verifiers:
// internal/token, the gateway, the backend and the nginx edge.
package tokentest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
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
	Salted = "ps~1"
	Curved = "ec:1"
)

// Issuer has a secret without a kid, two secrets with a kid, an Ed25519 key, a P-256 key, and RSA keys for RS256 and
// PS256.
type Issuer struct {
	Secret  string
	Keys    []byte // JWK Set for verifiers: all keys except the secret
	Secrets map[string][]byte
	Ed25519 ed25519.PrivateKey
	P256    *ecdsa.PrivateKey
	RSA     *rsa.PrivateKey // for RS256
	PSS     *rsa.PrivateKey // for PS256
}

// New returns the same Issuer to all tests of a process, because the generation of RSA keys is slow.
var New = sync.OnceValue(func() *Issuer {
	w := &Issuer{Secret: "a secret of the tests, of 32 bytes at least", Secrets: map[string][]byte{}}
	var keys []any
	for _, kid := range []string{First, Second} {
		text := must(token.Generate(token.HS256, kid))
		jwk := member(text)
		w.Secrets[kid] = bytesOf(jwk, "k")
		keys = append(keys, jwk)
	}
	eddsa, es := must(token.Generate(token.EdDSA, Edward)), must(token.Generate(token.ES256, Curved))
	rs, ps := must(token.Generate(token.RS256, Rivest)), must(token.Generate(token.PS256, Salted))
	w.Ed25519 = ed25519.NewKeyFromSeed(bytesOf(member(eddsa), "d"))
	w.P256 = must(ecdsa.ParseRawPrivateKey(elliptic.P256(), bytesOf(member(es), "d")))
	w.RSA, w.PSS = rsaKey(member(rs)), rsaKey(member(ps))
	for _, v := range members(must(token.Public(eddsa, es, rs, ps))) {
		keys = append(keys, v)
	}
	w.Keys = must(json.Marshal(map[string]any{"keys": keys}))
	return w
})

func rsaKey(jwk map[string]any) *rsa.PrivateKey {
	key := &rsa.PrivateKey{
		PublicKey: rsa.PublicKey{N: new(big.Int).SetBytes(bytesOf(jwk, "n")), E: 65537},
		D:         new(big.Int).SetBytes(bytesOf(jwk, "d")),
		Primes:    []*big.Int{new(big.Int).SetBytes(bytesOf(jwk, "p")), new(big.Int).SetBytes(bytesOf(jwk, "q"))},
	}
	key.Precompute()
	return key
}

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

// signed appends a signature to a text.
func signed(text string, signature []byte) string { return text + "." + B64.EncodeToString(signature) }

// HS signs a text with a secret.
func HS(text string, secret []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(text))
	return signed(text, mac.Sum(nil))
}

// Ed signs a text with the Ed25519 key.
func (w *Issuer) Ed(text string) string { return signed(text, ed25519.Sign(w.Ed25519, []byte(text))) }

// RS signs a text with the RSA key.
func (w *Issuer) RS(text string) string { return pkcs1v15(w.RSA, crypto.SHA256, text) }

// PS signs a text with the RSA key for PS256.
func (w *Issuer) PS(text string) string { return pss(w.PSS, crypto.SHA256, sha256.Size, text) }

// ES signs a text with the P-256 key.
func (w *Issuer) ES(text string) string { return es(w.P256, text) }

func digest(hash crypto.Hash, text string) []byte {
	h := hash.New()
	h.Write([]byte(text))
	return h.Sum(nil)
}

func pkcs1v15(key *rsa.PrivateKey, hash crypto.Hash, text string) string {
	return signed(text, must(rsa.SignPKCS1v15(rand.Reader, key, hash, digest(hash, text))))
}

// pss signs with a salt of this length in bytes, or of one of the special lengths of crypto/rsa.
func pss(key *rsa.PrivateKey, hash crypto.Hash, salt int, text string) string {
	options := &rsa.PSSOptions{SaltLength: salt}
	return signed(text, must(rsa.SignPSS(rand.Reader, key, hash, digest(hash, text), options)))
}

func asn1(key *ecdsa.PrivateKey, text string) string {
	return signed(text, must(ecdsa.SignASN1(rand.Reader, key, digest(crypto.SHA256, text))))
}

// es signs with a key of any curve. It truncates longer numbers to their last 32 bytes.
func es(key *ecdsa.PrivateKey, text string) string {
	r, s, err := ecdsa.Sign(rand.Reader, key, digest(crypto.SHA256, text))
	if err != nil {
		panic(err)
	}
	low := new(big.Int).Lsh(big.NewInt(1), 256)
	return signed(text, pair(r.Mod(r, low), s.Mod(s, low)))
}

// pair encodes the signature of a P-256 key.
func pair(r, s *big.Int) []byte {
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signature
}

// Sign signs a text with the key for alg and kid. Without such a key it uses the secret.
func (w *Issuer) Sign(alg, kid, text string) string {
	switch {
	case alg == token.EdDSA, alg == "Ed25519":
		return w.Ed(text)
	case alg == token.ES256:
		return w.ES(text)
	case alg == token.PS256:
		return w.PS(text)
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

func bytesOf(jwk map[string]any, name string) []byte {
	return must(B64.DecodeString(jwk[name].(string)))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
