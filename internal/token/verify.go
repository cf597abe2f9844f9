package token

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"hash"
	"sync"

	"github.com/golang-jwt/jwt/v5"
)

// signatureLen is an HMAC-SHA256 in unpadded base64url.
const signatureLen = 43

// verifyKey checks signatures by its own algorithm alone.
type verifyKey struct {
	name
	public any // what method wants
	method jwt.SigningMethod
	desks  sync.Pool // of *desk
}

// desk is what one verification at a time needs.
type desk struct {
	mac  hash.Hash // of HS256 only
	text []byte
	sum  [sha256.Size]byte
	made [signatureLen]byte
}

func newVerifyKey(n name, public any) *verifyKey {
	k := &verifyKey{name: n, public: public, method: jwt.GetSigningMethod(n.alg)}
	k.desks.New = func() any { return new(desk) }
	if secret, ok := public.([]byte); ok {
		k.desks.New = func() any { return &desk{mac: hmac.New(sha256.New, secret)} }
	}
	return k
}

// read checks the signature of a token whose dots are at first and last, and reads its claims.
func (k *verifyKey) read(raw string, first, last int, quickly bool) (claims, error) {
	d := k.desks.Get().(*desk)
	defer k.desks.Put(d)
	if !k.signed(d, raw[:last], raw[last+1:]) {
		return claims{}, errors.New("the signature is not ours")
	}
	return d.claims(raw[first+1:last], quickly)
}

// signed tells whether the signature of text, as it is in the token, is this key's.
func (k *verifyKey) signed(d *desk, text, signature string) bool {
	if k.alg == HS256 {
		return d.signed(text, signature)
	}
	bytes, err := decodeStrictly(d.text[:0], signature)
	return err == nil && k.method.Verify(text, bytes, k.public) == nil
}

// signed compares the texts of the signatures and not their bytes: of several spellings only the canonical one is taken.
func (d *desk) signed(text, signature string) bool {
	d.text = append(append(d.text[:0], text...), signature...)
	d.mac.Reset()
	d.mac.Write(d.text[:len(text)])
	base64.RawURLEncoding.Encode(d.made[:], d.mac.Sum(d.sum[:0]))
	return subtle.ConstantTimeCompare(d.made[:], d.text[len(text):]) == 1
}
