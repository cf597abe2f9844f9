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
	w := &Issuer{
		Secret:  "a secret of the tests, of 32 bytes at least",
		Secrets: map[string][]byte{First: random(), Second: random()},
		Ed25519: ed25519.NewKeyFromSeed(random()),
		P256:    newKey(elliptic.P256()),
		RSA:     must(rsa.GenerateKey(rand.Reader, 2048)),
		PSS:     must(rsa.GenerateKey(rand.Reader, 2048)),
	}
	public := w.Ed25519.Public().(ed25519.PublicKey)
	point := must(w.P256.PublicKey.Bytes()) // 4, x, y
	w.Keys = must(json.Marshal(map[string]any{"keys": []map[string]string{
		{"kty": "oct", "kid": First, "alg": "HS256", "k": encoded(w.Secrets[First])},
		{"kty": "oct", "kid": Second, "alg": "HS256", "k": encoded(w.Secrets[Second])},
		{"kty": "OKP", "kid": Edward, "alg": "EdDSA", "crv": "Ed25519", "x": encoded(public)},
		{"kty": "EC", "kid": Curved, "alg": "ES256", "crv": "P-256", "x": encoded(point[1:33]), "y": encoded(point[33:])},
		{"kty": "RSA", "kid": Rivest, "alg": "RS256", "n": encoded(w.RSA.N.Bytes()), "e": "AQAB"},
		{"kty": "RSA", "kid": Salted, "alg": "PS256", "n": encoded(w.PSS.N.Bytes()), "e": "AQAB"},
	}}))
	return w
})

// random returns 32 random bytes.
func random() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return b
}

func newKey(curve elliptic.Curve) *ecdsa.PrivateKey {
	return must(ecdsa.GenerateKey(curve, rand.Reader))
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

func encoded(b []byte) string { return B64.EncodeToString(b) }

// Segments encodes a header and claims, without a signature.
func Segments(header, claims string) string {
	return encoded([]byte(header)) + "." + encoded([]byte(claims))
}

// signed appends a signature to a text.
func signed(text string, signature []byte) string { return text + "." + encoded(signature) }

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

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
