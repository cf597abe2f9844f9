package gateway

import (
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"sluice/gateway/limit"
	"sluice/internal/token"
)

// verifier verifies tokens and remembers those that were good, because in a flood the same buyers come again and again, and a look costs a
// twentieth of a signature. It has one place for each hash: a newer token takes the place of an older one, and memory is bounded. What is
// remembered is compared with the whole token, and no longer believed than the token itself, nor than the keys that it was verified with.
type verifier struct {
	keys   *token.File
	names  limit.Namer
	seed   maphash.Seed
	places []atomic.Pointer[verified]
	now    func() time.Time
}

type verified struct {
	raw     string
	subject string
	key     limit.Key // of subject
	expires time.Time
	by      *token.Set
}

const (
	rememberedTokens = 1 << 14 // a power of two; some 10 MB of tokens of the usual size
	rememberedSize   = 1 << 10 // bytes of a token: longer ones are verified each time
)

var errNoToken = errors.New("no token")

func newVerifier(keys *token.File, names limit.Namer) *verifier {
	return &verifier{keys: keys, names: names, seed: maphash.MakeSeed(), places: make([]atomic.Pointer[verified], rememberedTokens), now: time.Now}
}

// verify returns what is known of a token that is good. raw is not kept.
func (v *verifier) verify(raw []byte) (verified, error) {
	if len(raw) == 0 {
		return verified{}, errNoToken
	}
	keys := v.keys.Set()
	place := &v.places[maphash.Bytes(v.seed, raw)&(rememberedTokens-1)]
	if known := place.Load(); known != nil && known.raw == string(raw) && known.by == keys && v.now().Before(known.expires) {
		return *known, nil
	}
	subject, expires, err := keys.VerifyUntil(asString(raw))
	if err != nil {
		return verified{}, err
	}
	good := &verified{subject: subject, key: v.names.Text(subject), expires: expires, by: keys}
	if len(raw) <= rememberedSize {
		good.raw = string(raw)
		place.Store(good)
	}
	return *good, nil
}
