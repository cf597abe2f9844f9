package token

import (
	"crypto"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"hash"
	"sync"

	"github.com/golang-jwt/jwt/v5"
)

// signatureLen is the length of an HMAC-SHA256 in unpadded base64url.
const signatureLen = 43

// verifyKey verifies signatures with its algorithm only.
type verifyKey struct {
	name
	public any // key for method
	method jwt.SigningMethod
	pool   sync.Pool // of *scratch
}

// scratch holds the buffers of one verification.
type scratch struct {
	mac  hash.Hash // of HS256 only
	text []byte
	sum  [sha256.Size]byte
	want [signatureLen]byte
}

func newVerifyKey(n name, public any) *verifyKey {
	k := &verifyKey{name: n, public: public, method: jwt.GetSigningMethod(n.alg)}
	k.pool.New = func() any { return new(scratch) }
	if secret, ok := public.([]byte); ok {
		k.pool.New = func() any { return &scratch{mac: hmac.New(sha256.New, secret)} }
	}
	return k
}

var errSignature = errors.New("invalid signature")

// read verifies the signature of a token with dots at first and last, and returns its claims.
func (k *verifyKey) read(raw string, first, last int, fast bool, expect Expect) (claims, error) {
	d := k.pool.Get().(*scratch)
	defer k.pool.Put(d)
	if !k.verify(d, raw[:last], raw[last+1:]) {
		return claims{}, errSignature
	}
	return d.claims(raw[first+1:last], fast, expect)
}

// verify reports whether the encoded signature of text is valid.
func (k *verifyKey) verify(d *scratch, text, signature string) bool {
	if k.alg == HS256 {
		return d.verify(text, signature)
	}
	bytes, err := decodeStrictly(d.text[:0], signature)
	if err != nil {
		return false
	}
	if k.alg == PS256 { // the library accepts salts of any length
		d.sum = sha256.Sum256([]byte(text))
		options := &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}
		return rsa.VerifyPSS(k.public.(*rsa.PublicKey), crypto.SHA256, d.sum[:], bytes, options) == nil
	}
	return k.method.Verify(text, bytes, k.public) == nil
}

// verify compares the encoded signatures, so that only the canonical encoding is valid.
func (d *scratch) verify(text, signature string) bool {
	d.text = append(append(d.text[:0], text...), signature...)
	d.mac.Reset()
	d.mac.Write(d.text[:len(text)])
	base64.RawURLEncoding.Encode(d.want[:], d.mac.Sum(d.sum[:0]))
	return subtle.ConstantTimeCompare(d.want[:], d.text[len(text):]) == 1
}
