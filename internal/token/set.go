package token

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"sluice/internal/strictjson"
)

// Set verifies tokens with one or more keys. It is immutable and safe for concurrent use.
type Set struct {
	keys    map[name]*verifyKey
	source  []*jwk   // without the secret
	private []string // names of keys with a private part, which verifiers do not need and should not have
	skipped []string
	cache   *tokenCache // nil: tokens are not cached
	secrets bool        // tokens signed with a secret are cached as well
	expect  Expect
	now     func() time.Time

	// headers maps encoded headers of valid tokens to their keys. Issuers use few different headers. Writers hold mu.
	mu      sync.Mutex
	headers atomic.Pointer[map[string]*verifyKey]
}

// name identifies a key by the values in a token header. A key without a kid has the kid "".
type name struct{ alg, kid string }

func (n name) String() string { return strings.TrimSpace(n.alg + " " + n.kid) }

// maxHeaders limits Set.headers for issuers with variable headers.
const maxHeaders = 64

var errUnknownKey = errors.New("there is no key of this kid and alg")

// newSet returns a set of keys. A secret that is not empty is added as the HS256 key without a kid. Without a secret,
// keys must not be nil.
func newSet(secret string, keys []*jwk, o Options) (*Set, error) {
	s := &Set{keys: map[name]*verifyKey{}, source: keys, expect: o.Expect, now: o.Now, secrets: o.Cache > 0}
	if s.now == nil {
		s.now = time.Now
	}
	if s.secrets {
		s.cache = newTokenCache(o.Cache)
	}
	s.headers.Store(&map[string]*verifyKey{})
	for _, k := range keys {
		s.keys[k.name] = newVerifyKey(k.name, k.public)
		if k.alg != HS256 && s.cache == nil {
			s.cache = newTokenCache(cacheSize)
		}
		if k.hasPrivate() {
			s.private = append(s.private, k.String())
		}
	}
	if secret == "" && keys != nil {
		return s, nil
	}
	if len(secret) < MinSecret {
		return nil, fmt.Errorf("the token secret must have at least %d bytes, and has %d", MinSecret, len(secret))
	}
	anonymous := name{alg: HS256}
	if s.keys[anonymous] != nil {
		return nil, errors.New("the token secret and a key without a kid are both for " + HS256 + ": give the key a kid")
	}
	s.keys[anonymous] = newVerifyKey(anonymous, []byte(secret))
	return s, nil
}

// Names returns the algorithms and kids of the keys, sorted, for logs.
func (s *Set) Names() []string {
	names := make([]string, 0, len(s.keys))
	for n := range s.keys {
		names = append(names, n.String())
	}
	slices.Sort(names)
	return names
}

// Skipped describes the keys that are not in use because no verifier supports them.
func (s *Set) Skipped() []string { return s.skipped }

// Warn logs a warning for each key that is not in use because no verifier supports it, and one for keys with a private
// part. Call it once for each set.
func (s *Set) Warn(log *slog.Logger) {
	for _, key := range s.skipped {
		log.Warn("a token key is skipped", "key", key)
	}
	if len(s.private) > 0 {
		log.Warn("the token keys include private parts, which a verifier does not need", "keys", s.private)
	}
}

// Public returns the public parts of the keys as a JWK Set. It returns an error if a key is a secret, which has no
// public part.
func (s *Set) Public() ([]byte, error) { return publicOf(s.source) }

// Verify returns the verified subject.
func (s *Set) Verify(raw string) (sub string, err error) {
	sub, _, err = s.VerifyUntil(raw)
	return sub, err
}

// VerifyUntil returns the verified subject and the expiry of the token, for callers with a cache. The results do not
// share memory with raw.
func (s *Set) VerifyUntil(raw string) (sub string, expires time.Time, err error) {
	if sub, expires, err = s.verify(raw, true); err != nil {
		return "", time.Time{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return sub, expires, nil
}

// Cached returns the subject of a token that was verified before and is still valid. It costs much less than Verify.
// Call Verify if ok is false.
func (s *Set) Cached(raw string) (sub string, ok bool) {
	if s.cache == nil {
		return "", false
	}
	c, found := s.cache.find(raw)
	return c.subject, found && s.checkTime(c) == nil
}

// checkTime reports whether a token with these claims is valid now.
func (s *Set) checkTime(c claims) error {
	now := float64(s.now().UnixMicro()) / 1e6
	if now >= c.expires {
		return errExpired
	}
	if now < c.notBefore {
		return errNotYet
	}
	return nil
}

var errExpired, errNotYet = errors.New("expired"), errors.New("not valid yet")

// verify verifies a token. fast enables the caches and the fast path for plain claims, which do not change the result.
func (s *Set) verify(raw string, fast bool) (string, time.Time, error) {
	first, last := strings.IndexByte(raw, '.'), strings.LastIndexByte(raw, '.')
	if len(raw) > maxLen || first < 0 || first == last || strings.IndexByte(raw[first+1:last], '.') >= 0 {
		return "", time.Time{}, fmt.Errorf("not three segments of at most %d bytes", maxLen)
	}
	header := raw[:first]
	key := (*s.headers.Load())[header]
	known := fast && key != nil
	if !known {
		var err error
		if key, err = s.keyFor(header); err != nil {
			return "", time.Time{}, err
		}
	}
	cacheable := fast && (s.secrets || key.alg != HS256)
	var c claims
	var found bool
	if cacheable && known {
		c, found = s.cache.find(raw)
	}
	if !found {
		var err error
		if c, err = key.read(raw, first, last, fast, s.expect); err != nil {
			return "", time.Time{}, err
		}
	}
	if err := s.checkTime(c); err != nil {
		return "", time.Time{}, err
	}
	if !known {
		s.cacheHeader(header, key)
	}
	if cacheable && !found {
		s.cache.add(raw, c)
	}
	return c.subject, date(c.expires), nil
}

// keyFor parses a header and returns the key that it names.
func (s *Set) keyFor(segment string) (*verifyKey, error) {
	text, err := decodeStrictly(nil, segment)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	n, err := readHeader(text)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	key := s.keys[n]
	if key == nil {
		return nil, errUnknownKey
	}
	return key, nil
}

func (s *Set) cacheHeader(header string, key *verifyKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := *s.headers.Load()
	if known[header] != nil {
		return
	}
	next := make(map[string]*verifyKey, len(known)+1)
	if len(known) < maxHeaders {
		maps.Copy(next, known)
	}
	next[strings.Clone(header)] = key
	s.headers.Store(&next)
}

var strict = base64.RawURLEncoding.Strict()

// decodeStrictly appends the decoded segment. It accepts only the canonical encoding; the strict decoder of the library
// ignores line breaks.
func decodeStrictly(to []byte, segment string) ([]byte, error) {
	to, err := strict.AppendDecode(to, []byte(segment))
	if err != nil || strings.ContainsAny(segment, "\r\n") {
		return nil, errors.New("not base64url")
	}
	return to, nil
}

// types lists the types of tokens, in lower case: JWT, and access tokens of RFC 9068.
var types = []string{"jwt", "at+jwt", "application/at+jwt"}

// readHeader parses a header by the same rules as the Lua edge.
func readHeader(text []byte) (name, error) {
	header, err := strictjson.Object(text)
	if err != nil {
		return name{}, err
	}
	// These members change the meaning of a token, or contain a key.
	for _, unknown := range [...]string{"crit", "b64", "zip", "enc", "jwk", "jku", "x5c", "x5u"} {
		if _, has := header[unknown]; has {
			return name{}, errors.New(unknown + " is refused")
		}
	}
	if typ, has := header["typ"]; has {
		if s, ok := typ.(string); !ok || !slices.Contains(types, strings.ToLower(s)) {
			return name{}, errors.New("typ is not JWT or at+jwt")
		}
	}
	alg, ok := header["alg"].(string)
	if !ok {
		return name{}, errors.New("alg is not text")
	}
	if alg == ed25519Alg {
		alg = EdDSA
	}
	kid := ""
	if v, has := header["kid"]; has {
		if kid, ok = v.(string); !ok || !validKid(kid) {
			return name{}, errors.New("kid is not text of 1 to 255 bytes")
		}
	}
	return name{alg: alg, kid: kid}, nil
}

// maxKid is the maximum length of a kid in bytes.
const maxKid = 255

func validKid(kid string) bool {
	return kid != "" && len(kid) <= maxKid && strings.IndexFunc(kid, unicode.IsControl) < 0
}
