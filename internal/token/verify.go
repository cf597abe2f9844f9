package token

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"errors"

	"github.com/golang-jwt/jwt/v5"
)

// verifyKey verifies signatures with its algorithm only.
type verifyKey struct {
	name
	public any // key for method
	method jwt.SigningMethod
}

func newVerifyKey(n name, public any) *verifyKey {
	return &verifyKey{n, public, jwt.GetSigningMethod(n.alg)}
}

var errSignature = errors.New("invalid signature")

// verifies reports whether the encoded signature of text is valid.
func (k *verifyKey) verifies(text, signature string) bool {
	bytes, err := decodeStrictly(signature)
	if err != nil {
		return false
	}
	if k.alg == PS256 { // the library accepts salts of any length
		sum := sha256.Sum256([]byte(text))
		options := &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash}
		return rsa.VerifyPSS(k.public.(*rsa.PublicKey), crypto.SHA256, sum[:], bytes, options) == nil
	}
	return k.method.Verify(text, bytes, k.public) == nil
}
