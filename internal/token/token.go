// Package token signs and verifies the JWTs that identify buyers. Each key has one algorithm, and a token cannot
// select another: its kid and alg together identify one key, or none. Verification requires exp and sub, and rejects
// crit. Errors are for logs, and must not be sent to clients.
//
// The nginx edge verifies in Lua (lua/edge/sluice/token.lua), with the same results for every token and every key file.
// testdata and the tests of package nginx verify that.
package token

import (
	"errors"
	"time"
)

// The supported algorithms.
const (
	HS256 = "HS256" // a secret shared by issuer and verifiers
	RS256 = "RS256" // RSA with PKCS #1 v1.5 and SHA-256; for this and the following, verifiers have the public key
	PS256 = "PS256" // RSA with PSS and SHA-256, with a salt of 32 bytes (RFC 7518)
	ES256 = "ES256" // ECDSA with P-256 and SHA-256
	EdDSA = "EdDSA" // Ed25519
)

// ed25519Alg is another name of EdDSA with Ed25519 (RFC 9864), in keys and in tokens.
const ed25519Alg = "Ed25519"

// MinSecret is the minimum length of a secret, in bytes.
const MinSecret = 32

// maxLen is the maximum length of a valid token in bytes.
const maxLen = 4096

// MaxSubject is the maximum length of a valid sub in bytes.
const MaxSubject = 255

// ErrInvalid is wrapped by every error of Verify.
var ErrInvalid = errors.New("invalid token")

// Key signs and verifies with an HS256 secret without a kid. Create it with NewKey. Safe for concurrent use.
type Key struct {
	*Set
	*Signer
}

// NewKey returns a Key with a secret of at least MinSecret bytes.
func NewKey(secret string) (*Key, error) { return NewKeyAt(secret, time.Now) }

// NewKeyAt is NewKey with a custom clock.
func NewKeyAt(secret string, now func() time.Time) (*Key, error) {
	set, err := newSet(secret, nil, Options{Now: now})
	if err != nil {
		return nil, err
	}
	return &Key{Set: set, Signer: &Signer{name: name{alg: HS256}, private: []byte(secret), now: now}}, nil
}
