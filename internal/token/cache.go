package token

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// tokenCache stores valid tokens of public keys, whose verification takes about fifty times as long as a lookup. It
// has a fixed number of slots: a new token replaces an older one with the same hash. Safe for concurrent use.
type tokenCache struct {
	seed  maphash.Seed
	slots []atomic.Pointer[cachedToken]
}

// cachedToken is valid for an identical token only.
type cachedToken struct {
	raw string
	claims
}

const (
	cacheSize      = 1 << 14 // a power of two; about 10 MB with typical tokens
	maxCachedToken = 1 << 10 // bytes; longer tokens are not cached
)

func newTokenCache() *tokenCache {
	return &tokenCache{seed: maphash.MakeSeed(), slots: make([]atomic.Pointer[cachedToken], cacheSize)}
}

func (m *tokenCache) slot(raw string) *atomic.Pointer[cachedToken] {
	return &m.slots[maphash.String(m.seed, raw)&(cacheSize-1)]
}

func (m *tokenCache) find(raw string) (claims, bool) {
	if known := m.slot(raw).Load(); known != nil && known.raw == raw {
		return known.claims, true
	}
	return claims{}, false
}

func (m *tokenCache) add(raw string, c claims) {
	if len(raw) <= maxCachedToken {
		m.slot(raw).Store(&cachedToken{raw: strings.Clone(raw), claims: c})
	}
}
