package token

import (
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync/atomic"
)

// tokenCache stores valid tokens, because verifying a signature takes from twenty to fifty times as long as a lookup.
// It has a fixed size and is allocated with the first token. A new token replaces an older one of its group. Safe for
// concurrent use.
type tokenCache struct {
	seed   maphash.Seed
	size   int                          // of groups
	groups atomic.Pointer[[]tokenGroup] // nil before the first token
}

// tokenGroup holds tokens with the same low bits of the hash. It fills one cache line, so that a lookup reads little
// other memory.
type tokenGroup [groupSize]struct {
	hash  atomic.Uint64 // of the token; equality is decided by comparing the token itself
	token atomic.Pointer[cachedToken]
}

// cachedToken is valid for an identical token only.
type cachedToken struct {
	raw string
	claims
}

const (
	groupSize      = 4
	cacheSize      = 1 << 14 // tokens, by default; about 10 MB with typical ones
	maxCachedToken = 1 << 10 // bytes; longer tokens are not cached
)

// newTokenCache returns a cache of size tokens, a power of two.
func newTokenCache(size int) *tokenCache {
	return &tokenCache{seed: maphash.MakeSeed(), size: size / groupSize}
}

func (c *tokenCache) group(groups []tokenGroup, raw string) (uint64, *tokenGroup) {
	hash := maphash.String(c.seed, raw)
	return hash, &groups[hash&uint64(len(groups)-1)]
}

func (c *tokenCache) find(raw string) (claims, bool) {
	groups := c.groups.Load()
	if groups == nil {
		return claims{}, false
	}
	hash, group := c.group(*groups, raw)
	for i := range group {
		if group[i].hash.Load() != hash {
			continue
		}
		if t := group[i].token.Load(); t != nil && t.raw == raw {
			return t.claims, true
		}
	}
	return claims{}, false
}

func (c *tokenCache) add(raw string, verified claims) {
	if len(raw) > maxCachedToken {
		return
	}
	if c.groups.Load() == nil {
		groups := make([]tokenGroup, c.size)
		c.groups.CompareAndSwap(nil, &groups)
	}
	hash, group := c.group(*c.groups.Load(), raw)
	group.add(hash, &cachedToken{raw: strings.Clone(raw), claims: verified})
}

// add replaces the token with the same hash, or uses a free entry, or replaces a random token.
func (g *tokenGroup) add(hash uint64, t *cachedToken) {
	chosen := rand.IntN(groupSize)
	for i := range g {
		if h := g[i].hash.Load(); h == hash {
			chosen = i
			break
		} else if h == 0 {
			chosen = i
		}
	}
	g[chosen].token.Store(t)
	g[chosen].hash.Store(hash)
}
