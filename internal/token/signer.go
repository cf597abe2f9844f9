package token

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"sluice/internal/strictjson"
)

// Signer signs tokens with one key. Create it with NewSigner. Safe for concurrent use.
type Signer struct {
	name    name
	private any // key for the signing method
	claims  Expect
	now     func() time.Time
}

// With returns a Signer that adds these claims to its tokens. Empty ones are omitted.
func (s *Signer) With(claims Expect) *Signer {
	with := *s
	with.claims = claims
	return &with
}

// Sign returns a token for the buyer sub that is valid for ttl from now. Verify rejects it unless sub has 1 to
// MaxSubject bytes of UTF-8 without control characters.
func (s *Signer) Sign(sub string, ttl time.Duration) (string, error) {
	now := s.now()
	var audience jwt.ClaimStrings
	if s.claims.Audience != "" {
		audience = jwt.ClaimStrings{s.claims.Audience}
	}
	t := jwt.NewWithClaims(jwt.GetSigningMethod(s.name.alg), jwt.RegisteredClaims{
		Issuer:    s.claims.Issuer,
		Audience:  audience,
		Subject:   sub,
		IssuedAt:  jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(now.Add(ttl)),
	})
	if s.name.kid != "" {
		t.Header["kid"] = s.name.kid
	}
	return t.SignedString(s.private)
}

// NewSigner returns a Signer with the key named kid of a JWK Set or a single JWK, which must have a private part. If
// kid is empty, exactly one key must be able to sign.
func NewSigner(text []byte, kid string) (*Signer, error) {
	keys, err := parseOneOrMore(text)
	if err != nil {
		return nil, err
	}
	var found *jwk
	for _, k := range keys {
		switch {
		case kid != "" && k.kid != kid, kid == "" && k.alg != HS256 && !k.hasPrivate():
		case found != nil:
			return nil, errors.New("more than one key can sign: select one by its kid")
		default:
			found = k
		}
	}
	switch {
	case found == nil && kid != "":
		return nil, fmt.Errorf("there is no key with the kid %q", kid)
	case found == nil:
		return nil, errors.New("no key has the private part that signing needs")
	}
	private, err := found.private()
	if err != nil {
		return nil, fmt.Errorf("the key with the kid %q: %w", found.kid, err)
	}
	return &Signer{name: found.name, private: private, now: time.Now}, nil
}

// parseOneOrMore accepts a single JWK as a set of one.
func parseOneOrMore(text []byte) ([]*jwk, error) {
	if object, err := strictjson.Object(text); err == nil && object["kty"] != nil && object["keys"] == nil {
		text = []byte(`{"keys":[` + string(bytes.TrimSpace(text)) + `]}`)
	}
	keys, _, err := parseKeys(text)
	return keys, err
}

// private returns the private key, after checking that it matches the public part.
func (k *jwk) private() (any, error) {
	if k.alg != HS256 && !k.hasPrivate() {
		return nil, errors.New("no private part, which signing needs")
	}
	switch public := k.public.(type) {
	case ed25519.PublicKey:
		seed := k.bytes("d")
		if len(seed) != ed25519.SeedSize {
			return nil, fmt.Errorf("d must be base64url of %d bytes", ed25519.SeedSize)
		}
		private := ed25519.NewKeyFromSeed(seed)
		if !public.Equal(private.Public()) {
			return nil, errors.New("d does not match x")
		}
		return private, nil
	case *ecdsa.PublicKey:
		private, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), k.bytes("d"))
		if err != nil {
			return nil, fmt.Errorf("d must be base64url of a number of %d bytes", coordinate)
		}
		if !public.Equal(&private.PublicKey) {
			return nil, errors.New("d does not match x and y")
		}
		return private, nil
	case *rsa.PublicKey:
		number := func(member string) *big.Int { return new(big.Int).SetBytes(k.bytes(member)) }
		private := &rsa.PrivateKey{PublicKey: *public, D: number("d"), Primes: []*big.Int{number("p"), number("q")}}
		if err := private.Validate(); err != nil {
			return nil, errors.New("d, p and q are required, and must match n and e")
		}
		private.Precompute()
		return private, nil
	}
	return k.public, nil // a secret
}
