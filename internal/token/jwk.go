package token

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"sluice/internal/strictjson"
)

// Limits of a key file.
const (
	maxFile = 256 << 10 // bytes
	maxKeys = 100

	maxSecret = 1024 // bytes
	minRSA    = 2048 // bits
	maxRSA    = 8192
	minE      = 65537 // FIPS 186-5
	maxE      = 1<<31 - 1
)

// jwk is a signature key of a JWK Set (RFC 7517).
type jwk struct {
	name
	public any            // []byte, ed25519.PublicKey, *ecdsa.PublicKey or *rsa.PublicKey
	object map[string]any // all members
}

// hasPrivate reports whether a key contains a private part.
func (k *jwk) hasPrivate() bool { return k.alg != HS256 && k.object["d"] != nil }

// errNotStrict has the same text at the Lua edge.
var errNotStrict = errors.New("not a JSON object in UTF-8 without repeated names")

// unsupportedError is the reason for skipping a key: it may be valid, but no verifier supports its kind.
type unsupportedError struct{ member string }

func (e unsupportedError) Error() string { return "its " + e.member + " is not supported" }

// parseKeys parses a JWK Set. It ignores keys for encryption, and skips keys of unsupported kinds, which it describes
// for a warning. It returns the first error, which contains no key material. The messages are those of
// lua/edge/sluice/token/keys.lua.
func parseKeys(text []byte) (all []*jwk, skipped []string, err error) {
	if len(text) > maxFile {
		return nil, nil, fmt.Errorf("longer than %d bytes", maxFile)
	}
	set, err := strictjson.Object(text)
	if err != nil {
		return nil, nil, errNotStrict
	}
	list, ok := set["keys"].([]any)
	if !ok || len(list) == 0 {
		return nil, nil, errors.New(`"keys" must be a list of one key at least`)
	}
	if len(list) > maxKeys {
		return nil, nil, fmt.Errorf("more than %d keys", maxKeys)
	}
	var keys []*jwk
	var indices []int
	for i, v := range list {
		k, err := parseKey(v)
		if unsupported, ok := errors.AsType[unsupportedError](err); ok {
			skipped = append(skipped, fmt.Sprintf("key %d%s: %s", i+1, kidOf(v), unsupported))
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("key %d: %w", i+1, err)
		}
		if k == nil {
			continue
		}
		if k.kid != "" && slices.ContainsFunc(keys, func(had *jwk) bool { return had.kid == k.kid }) {
			return nil, nil, fmt.Errorf("key %d: its kid is used twice", i+1)
		}
		keys, indices = append(keys, k), append(indices, i+1)
	}
	for i, k := range keys {
		if k.kid == "" && slices.ContainsFunc(keys, func(other *jwk) bool { return other != k && other.alg == k.alg }) {
			return nil, nil, fmt.Errorf("key %d: needs a kid, because it is not the only one for %s", indices[i], k.alg)
		}
	}
	if len(keys) == 0 {
		return nil, nil, errors.New("no key for signatures")
	}
	return keys, skipped, nil
}

// kidOf returns the kid of a key that is skipped, for a warning.
func kidOf(v any) string {
	object, _ := v.(map[string]any)
	if kid, ok := object["kid"].(string); ok && validKid(kid) {
		return ` (kid "` + kid + `")`
	}
	return ""
}

// kinds lists the algorithms for each kty and the crv. The first one is that of a key without alg.
var kinds = map[string]struct {
	crv  string
	algs []string
}{
	"oct": {"", []string{HS256}},
	"OKP": {"Ed25519", []string{EdDSA, ed25519Alg}},
	"EC":  {"P-256", []string{ES256}},
	"RSA": {"", []string{RS256, PS256}},
}

// algs lists the algorithms of all kinds.
var algs = []string{HS256, EdDSA, ed25519Alg, ES256, RS256, PS256}

// algOf returns the algorithm of a key.
func (k *jwk) algOf() (string, error) {
	kty, ok := k.object["kty"].(string)
	if !ok {
		return "", errors.New("kty must be EC, OKP, RSA or oct")
	}
	kind, ok := kinds[kty]
	if !ok {
		return "", unsupportedError{"kty"}
	}
	if crv, ok := k.object["crv"].(string); kind.crv != "" && crv != kind.crv {
		if !ok {
			return "", fmt.Errorf("crv must be %s", kind.crv)
		}
		return "", unsupportedError{"crv"}
	}
	v, has := k.object["alg"]
	alg, ok := v.(string)
	switch {
	case !has || alg == ed25519Alg && kty == "OKP":
		return kind.algs[0], nil
	case slices.Contains(kind.algs, alg):
		return alg, nil
	case !ok || slices.Contains(algs, alg):
		return "", fmt.Errorf("alg must be %s, as its kty says", strings.Join(kind.algs, " or "))
	}
	return "", unsupportedError{"alg"}
}

// parseKey returns nil for a key that is not for signatures.
func parseKey(v any) (*jwk, error) {
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("not an object")
	}
	switch use, has := object["use"]; {
	case use == "enc":
		return nil, nil
	case has && use != "sig":
		return nil, errors.New("use must be sig or enc")
	}
	if ops, has := object["key_ops"]; has {
		list, ok := ops.([]any)
		if !ok {
			return nil, errors.New("key_ops must be a list")
		}
		if !slices.Contains(list, "verify") && !slices.Contains(list, "sign") {
			return nil, nil
		}
	}
	k := &jwk{object: object}
	var err error
	if k.alg, err = k.algOf(); err != nil {
		return nil, err
	}
	switch k.alg {
	case HS256:
		k.public, err = k.secret()
	case EdDSA:
		k.public, err = k.ed25519()
	case ES256:
		k.public, err = k.p256()
	default:
		k.public, err = k.rsa()
	}
	if err != nil {
		return nil, err
	}
	if kid, has := object["kid"]; has {
		if k.kid, ok = kid.(string); !ok || !validKid(k.kid) {
			return nil, fmt.Errorf("kid must be text of 1 to %d bytes without control characters", maxKid)
		}
	}
	return k, nil
}

// bytes decodes a base64url member. It returns nil if the member is missing or invalid.
func (k *jwk) bytes(member string) []byte {
	text, ok := k.object[member].(string)
	if !ok || text == "" {
		return nil
	}
	b, err := decodeStrictly(nil, text)
	if err != nil {
		return nil
	}
	return b
}

func (k *jwk) secret() (any, error) {
	b := k.bytes("k")
	if len(b) < MinSecret || len(b) > maxSecret {
		return nil, fmt.Errorf("k must be base64url of %d to %d bytes", MinSecret, maxSecret)
	}
	return b, nil
}

func (k *jwk) ed25519() (any, error) {
	b := k.bytes("x")
	if len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("x must be base64url of %d bytes", ed25519.PublicKeySize)
	}
	if isSmallOrder(b) {
		return nil, errors.New("x is a point of small order: signatures can be forged")
	}
	return ed25519.PublicKey(b), nil
}

// coordinate is the length of x, y and d of a P-256 key, in bytes.
const coordinate = 32

func (k *jwk) p256() (any, error) {
	x, y := k.bytes("x"), k.bytes("y")
	if len(x) != coordinate || len(y) != coordinate {
		return nil, fmt.Errorf("x and y must be base64url of %d bytes", coordinate)
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
	if err != nil {
		return nil, errors.New("x and y are not a point of P-256")
	}
	return public, nil
}

func (k *jwk) rsa() (any, error) {
	n, e := new(big.Int).SetBytes(k.bytes("n")), new(big.Int).SetBytes(k.bytes("e"))
	if bits := n.BitLen(); bits < minRSA || bits > maxRSA || n.Bit(0) == 0 {
		return nil, fmt.Errorf("n must be base64url of an odd number of %d to %d bits", minRSA, maxRSA)
	}
	if e.Cmp(big.NewInt(minE)) < 0 || e.Cmp(big.NewInt(maxE)) > 0 || e.Bit(0) == 0 {
		return nil, fmt.Errorf("e must be base64url of an odd number from %d to %d", minE, maxE)
	}
	return &rsa.PublicKey{N: n, E: int(e.Int64())}, nil
}

// smallOrder lists the encodings of the points of small order without the top bit: 0, 1, the two of order 8, p-1, p and
// p+1. For such a key it is easy to construct signatures that are valid for every text. A key of zeros is a likely
// placeholder.
var smallOrder = strings.Fields(`
	0000000000000000000000000000000000000000000000000000000000000000
	0100000000000000000000000000000000000000000000000000000000000000
	26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05
	c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a
	ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f
	edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f
	eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f`)

func isSmallOrder(x []byte) bool {
	x = bytes.Clone(x)
	x[31] &= 0x7f
	return slices.Contains(smallOrder, hex.EncodeToString(x))
}
