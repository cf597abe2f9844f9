package token

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
)

// member is a JWK for encoding, with the members in this order.
type member struct {
	Kty string `json:"kty"`
	Crv string `json:"crv,omitempty"`
	Kid string `json:"kid,omitempty"`
	Alg string `json:"alg"`
	Use string `json:"use"`
	K   string `json:"k,omitempty"`
	X   string `json:"x,omitempty"`
	Y   string `json:"y,omitempty"`
	N   string `json:"n,omitempty"`
	E   string `json:"e,omitempty"`
	D   string `json:"d,omitempty"`
	P   string `json:"p,omitempty"`
	Q   string `json:"q,omitempty"`
	DP  string `json:"dp,omitempty"`
	DQ  string `json:"dq,omitempty"`
	QI  string `json:"qi,omitempty"`
}

// rsaBits is the size of generated RSA keys. It is the minimum, because the cost of a verification grows with the
// square of the size.
const rsaBits = minRSA

func encoded(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Generate returns a new key for an algorithm as a JWK Set, including the private part.
func Generate(alg, kid string) ([]byte, error) {
	if !validKid(kid) {
		return nil, fmt.Errorf("the kid must have 1 to %d bytes and no control characters", maxKid)
	}
	m := member{Kid: kid, Alg: alg, Use: "sig"}
	switch alg {
	case HS256:
		secret := make([]byte, MinSecret)
		_, _ = rand.Read(secret) // never fails
		m.Kty, m.K = "oct", encoded(secret)
	case EdDSA:
		public, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			return nil, err
		}
		m.Kty, m.Crv, m.X, m.D = "OKP", "Ed25519", encoded(public), encoded(private.Seed())
	case ES256:
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		d, err := key.Bytes()
		if err != nil {
			return nil, err
		}
		if err := m.point(&key.PublicKey); err != nil {
			return nil, err
		}
		m.D = encoded(d)
	case RS256, PS256:
		key, err := rsa.GenerateKey(rand.Reader, rsaBits)
		if err != nil {
			return nil, err
		}
		m.Kty, m.N, m.E = "RSA", encoded(key.N.Bytes()), encoded(big.NewInt(int64(key.E)).Bytes())
		m.D, m.P, m.Q = encoded(key.D.Bytes()), encoded(key.Primes[0].Bytes()), encoded(key.Primes[1].Bytes())
		crt := key.Precomputed
		m.DP, m.DQ, m.QI = encoded(crt.Dp.Bytes()), encoded(crt.Dq.Bytes()), encoded(crt.Qinv.Bytes())
	default:
		return nil, fmt.Errorf("alg must be %s, %s, %s, %s or %s", EdDSA, ES256, HS256, PS256, RS256)
	}
	return write([]member{m})
}

// point sets the members of a P-256 key.
func (m *member) point(public *ecdsa.PublicKey) error {
	b, err := public.Bytes() // 4, x, y
	if err != nil {
		return err
	}
	m.Kty, m.Crv, m.X, m.Y = "EC", "P-256", encoded(b[1:1+coordinate]), encoded(b[1+coordinate:])
	return nil
}

// Public joins JWK Sets, without private parts. It returns an error if they contain a secret (oct), which has no public
// part.
func Public(sets ...[]byte) ([]byte, error) {
	var all []*jwk
	for _, text := range sets {
		keys, err := parseOneOrMore(text)
		if err != nil {
			return nil, err
		}
		all = append(all, keys...)
	}
	return publicOf(all)
}

// publicOf is Public for parsed keys.
func publicOf(keys []*jwk) ([]byte, error) {
	var members []member
	for _, k := range keys {
		m := member{Kid: k.kid, Alg: k.alg, Use: "sig"}
		switch public := k.public.(type) {
		case ed25519.PublicKey:
			m.Kty, m.Crv, m.X = "OKP", "Ed25519", encoded(public)
		case *ecdsa.PublicKey:
			if err := m.point(public); err != nil {
				return nil, err
			}
		case *rsa.PublicKey:
			m.Kty, m.N, m.E = "RSA", encoded(public.N.Bytes()), encoded(big.NewInt(int64(public.E)).Bytes())
		default:
			return nil, errors.New("a secret has no public part: " + k.String())
		}
		members = append(members, m)
	}
	text, err := write(members)
	if err != nil {
		return nil, err
	}
	_, _, err = parseKeys(text) // the sets may be valid alone and invalid together
	return text, err
}

func write(members []member) ([]byte, error) {
	text, err := json.MarshalIndent(map[string][]member{"keys": members}, "", "  ")
	return append(text, '\n'), err
}
