// Package token signs and verifies the JWTs that name a buyer. What a token says never chooses how it is checked: its kid and alg together name
// one key of the verifier's, or none, and each key has one algorithm. Verification wants exp and sub, refuses crit, and never tells a caller's
// client why: the error is for logs.
//
// The nginx edge verifies in Lua (lua/edge/sluice/token.lua). The two say the same of every token and of every file of keys; testdata and the tests
// of the nginx package hold them to it.
package token

import (
	"errors"
	"fmt"
	"time"
)

// The algorithms there are.
const (
	HS256 = "HS256" // a secret that issuer and verifiers share
	RS256 = "RS256" // RSA with PKCS #1 v1.5 and SHA-256: verifiers hold a public key
	EdDSA = "EdDSA" // Ed25519: verifiers hold a public key
)

// MinSecret is the least length of a signing secret, in bytes.
const MinSecret = 32

// MaxLen is the longest token that is looked at, in bytes.
const MaxLen = 4096

// MaxSubject is the longest sub, in bytes.
const MaxSubject = 255

// ErrInvalid is wrapped by every error of Verify.
var ErrInvalid = errors.New("invalid token")

// Key is one HS256 secret without a name: it signs, and verifies what it has signed. It is safe for concurrent use; the zero value is not usable.
type Key struct {
	*Set
	*Signer
}

// NewKey makes a key from a secret of at least MinSecret bytes.
func NewKey(secret string) (*Key, error) { return NewKeyAt(secret, time.Now) }

// NewKeyAt is NewKey with a clock of the caller's.
func NewKeyAt(secret string, now func() time.Time) (*Key, error) {
	set, err := newSet(secret, nil, now)
	if err != nil {
		return nil, err
	}
	return &Key{Set: set, Signer: &Signer{name: name{alg: HS256}, private: []byte(secret), now: now}}, nil
}

func checkSecret(secret string) error {
	if len(secret) < MinSecret {
		return fmt.Errorf("the token secret must have at least %d bytes, and has %d", MinSecret, len(secret))
	}
	return nil
}
