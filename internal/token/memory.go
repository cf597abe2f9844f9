package token

import (
	"hash/maphash"
	"strings"
	"sync/atomic"
)

// memory holds good tokens of public keys, whose signatures take some fifty times as long to check as to look up: the same buyer asks again and again.
// It has one place for each hash: a newer token takes the place of an older one, and memory is bounded.
type memory struct {
	seed   maphash.Seed
	places []atomic.Pointer[remembered]
}

// remembered is compared with the whole token.
type remembered struct {
	raw string
	claims
}

const (
	rememberedTokens = 1 << 14 // a power of two; some 10 MB of tokens of the usual size
	rememberedSize   = 1 << 10 // bytes of a token: longer ones are verified each time
)

func newMemory() *memory {
	return &memory{seed: maphash.MakeSeed(), places: make([]atomic.Pointer[remembered], rememberedTokens)}
}

func (m *memory) place(raw string) *atomic.Pointer[remembered] {
	return &m.places[maphash.String(m.seed, raw)&(rememberedTokens-1)]
}

func (m *memory) find(raw string) (claims, bool) {
	if known := m.place(raw).Load(); known != nil && known.raw == raw {
		return known.claims, true
	}
	return claims{}, false
}

func (m *memory) keep(raw string, c claims) {
	if len(raw) <= rememberedSize {
		m.place(raw).Store(&remembered{raw: strings.Clone(raw), claims: c})
	}
}
