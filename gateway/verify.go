package gateway

import (
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"sluice/gateway/internal/ascii"
	"sluice/gateway/limit"
	"sluice/internal/token"
)

// verifier verifies tokens and caches the valid ones: in a flood the same buyers return, and a lookup costs a
// twentieth of a signature. The cache has a fixed size; a new token replaces an older one of its set. A cached token
// must be equal to the whole token, must not have expired, and must have been verified with the current keys.
type verifier struct {
	keys  *token.File
	namer limit.Namer
	seed  maphash.Seed
	sets  []tokenSet
	now   func() time.Time
}

// tokenSet holds tokens with the same low bits of the hash. It fills one cache line, so that a lookup reads
// little memory besides the token.
type tokenSet [tokensPerSet]struct {
	hash  atomic.Uint64 // of the token; equality is decided by comparing the token itself
	token atomic.Pointer[verified]
}

type verified struct {
	raw     string
	subject string
	key     limit.Key // of subject
	expires time.Time
	by      *token.Set
}

const (
	tokensPerSet   = 4
	tokenSets      = limit.DefaultCapacity / tokensPerSet // a power of two; about 50 MB when full
	maxCachedToken = 1 << 10                              // bytes; longer tokens are not cached
)

var errNoToken = errors.New("no token")

func newVerifier(keys *token.File, namer limit.Namer) *verifier {
	return &verifier{keys: keys, namer: namer, seed: maphash.MakeSeed(), sets: make([]tokenSet, tokenSets), now: time.Now}
}

// cached returns the result of an earlier verification that is still valid, or nil.
func (v *verifier) cached(raw []byte) *verified {
	hash := maphash.Bytes(v.seed, raw)
	set := &v.sets[hash&(tokenSets-1)]
	for i := range set {
		if set[i].hash.Load() != hash {
			continue
		}
		t := set[i].token.Load()
		if t != nil && t.raw == string(raw) && t.by == v.keys.Set() && v.now().Before(t.expires) {
			return t
		}
	}
	return nil
}

// verify verifies a token and caches the result if it is valid. It does not retain raw.
func (v *verifier) verify(raw []byte) (*verified, error) {
	if len(raw) == 0 {
		return nil, errNoToken
	}
	keys := v.keys.Set()
	subject, expires, err := keys.VerifyUntil(ascii.String(raw))
	if err != nil {
		return nil, err
	}
	t := &verified{subject: subject, key: v.namer.Text(subject), expires: expires, by: keys}
	if len(raw) <= maxCachedToken {
		t.raw = string(raw)
		hash := maphash.Bytes(v.seed, raw)
		v.sets[hash&(tokenSets-1)].add(hash, t)
	}
	return t, nil
}

// add replaces the token with the same hash, or uses a free entry, or replaces a random token.
func (s *tokenSet) add(hash uint64, t *verified) {
	chosen := rand.IntN(tokensPerSet)
	for i := range s {
		if h := s[i].hash.Load(); h == hash {
			chosen = i
			break
		} else if h == 0 {
			chosen = i
		}
	}
	s[chosen].token.Store(t)
	s[chosen].hash.Store(hash)
}
