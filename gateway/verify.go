package gateway

import (
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"sluice/gateway/limit"
	"sluice/internal/token"
)

// verifier verifies tokens and remembers those that were good, because in a flood the same buyers come again and again, and a look costs a
// twentieth of a signature. It has a few places for each hash: when they are taken a newer token takes that of an older one, and memory is bounded. What
// is remembered is compared with the whole token, and no longer believed than the token itself, nor than the keys that it was verified with.
type verifier struct {
	keys  *token.File
	names limit.Namer
	seed  maphash.Seed
	sets  []placeSet
	now   func() time.Time
}

// placeSet has the places of the hashes that end alike. It is one cache line, so that finding a token among those of 100,000 others reads little memory
// besides the token's own.
type placeSet [placesOfSet]struct {
	hash  atomic.Uint64 // a hint: what the token is compared with decides
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
	placesOfSet    = 4
	placeSets      = limit.DefaultCapacity / placesOfSet // a power of two: for as many buyers as there is room for buckets; some 50 MB when all are in use
	rememberedSize = 1 << 10                             // bytes of a token: longer ones are verified each time
)

var errNoToken = errors.New("no token")

func newVerifier(keys *token.File, names limit.Namer) *verifier {
	return &verifier{keys: keys, names: names, seed: maphash.MakeSeed(), sets: make([]placeSet, placeSets), now: time.Now}
}

// recall returns what is remembered of a token that was verified before and is still good, or nil.
func (v *verifier) recall(raw []byte) *verified {
	hash := maphash.Bytes(v.seed, raw)
	set := &v.sets[hash&(placeSets-1)]
	for i := range set {
		if set[i].hash.Load() != hash {
			continue
		}
		if known := set[i].token.Load(); known != nil && known.raw == string(raw) && known.by == v.keys.Set() && v.now().Before(known.expires) {
			return known
		}
	}
	return nil
}

// verify verifies a token, and remembers it if it is good. raw is not kept.
func (v *verifier) verify(raw []byte) (*verified, error) {
	if len(raw) == 0 {
		return nil, errNoToken
	}
	keys := v.keys.Set()
	subject, expires, err := keys.VerifyUntil(asString(raw))
	if err != nil {
		return nil, err
	}
	good := &verified{subject: subject, key: v.names.Text(subject), expires: expires, by: keys}
	if len(raw) <= rememberedSize {
		good.raw = string(raw)
		hash := maphash.Bytes(v.seed, raw)
		v.sets[hash&(placeSets-1)].keep(hash, good)
	}
	return good, nil
}

// keep puts a token in its own place, in a free one, or in that of any other.
func (s *placeSet) keep(hash uint64, good *verified) {
	chosen := rand.IntN(placesOfSet)
	for i := range s {
		if had := s[i].hash.Load(); had == hash {
			chosen = i
			break
		} else if had == 0 {
			chosen = i
		}
	}
	s[chosen].token.Store(good)
	s[chosen].hash.Store(hash)
}
