package token

import (
	"fmt"
	"testing"
	"time"
)

// The cache must keep nearly all tokens of many buyers. Otherwise each request costs a signature verification.
func TestCacheHoldsManyBuyers(t *testing.T) {
	const size = 1 << 14
	keys, err := Open("", secret, Options{Cache: size})
	if err != nil {
		t.Fatal(err)
	}
	signer := key(t, time.Now())
	tokens := make([]string, size/4)
	for i := range tokens {
		if tokens[i], err = signer.Sign(fmt.Sprint("buyer-", i), time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err = keys.Verify(tokens[i]); err != nil {
			t.Fatal(err)
		}
	}
	hits := 0
	for i, raw := range tokens {
		sub, ok := keys.Cached(raw)
		if ok {
			hits++
		}
		if ok && sub != fmt.Sprint("buyer-", i) {
			t.Fatalf("buyer %d is identified as %q", i, sub)
		}
	}
	if hits < len(tokens)*95/100 {
		t.Errorf("%d of %d buyers are cached", hits, len(tokens))
	}
}

func TestTokenGroupReplacesWhenFull(t *testing.T) {
	var g tokenGroup
	held := func() map[uint64]*cachedToken {
		m := map[uint64]*cachedToken{}
		for i := range g {
			if hash := g[i].hash.Load(); hash != 0 {
				m[hash] = g[i].token.Load()
			}
		}
		return m
	}
	for hash := range uint64(groupSize) {
		g.add(hash+1, &cachedToken{})
	}
	if n := len(held()); n != groupSize {
		t.Fatalf("%d of %d tokens are cached in a group of that size", n, groupSize)
	}
	renewed, newer := &cachedToken{}, &cachedToken{}
	if g.add(2, renewed); len(held()) != groupSize || held()[2] != renewed {
		t.Error("a token that is added again does not replace its entry")
	}
	if g.add(99, newer); len(held()) != groupSize || held()[99] != newer {
		t.Error("a new token does not replace exactly one token of a full group")
	}
}

// A cached token expires like the token itself, and is not accepted for a similar one.
func TestCachedTokensExpire(t *testing.T) {
	now := noon
	keys, err := Open("", secret, Options{Cache: 1 << 10, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := key(t, noon).Sign("ann", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if sub, ok := keys.Cached(raw); ok {
		t.Fatalf("cached before its verification: %q", sub)
	}
	verify := func(when string) {
		t.Helper()
		if sub, err := keys.Verify(raw); err != nil || sub != "ann" {
			t.Fatalf("%s: %q, %v", when, sub, err)
		}
	}
	verify("first")
	if sub, ok := keys.Cached(raw); !ok || sub != "ann" {
		t.Fatalf("cached: %q, %v", sub, ok)
	}
	alike := raw[:len(raw)-2] + "AA"
	if _, err := keys.Verify(alike); err == nil {
		t.Fatal("a token similar to a cached one is accepted")
	}
	if _, ok := keys.Cached(alike); ok {
		t.Fatal("a token similar to a cached one is cached")
	}
	// Hashes may collide.
	cache := keys.Set().cache
	groups := *cache.groups.Load()
	hash, _ := cache.group(groups, raw)
	for i := range groups {
		for j := range groups[i] {
			entry := &groups[i][j]
			entry.hash.Store(hash)
			entry.token.Store(&cachedToken{raw: "another", claims: claims{subject: "eve", expires: maxDate}})
		}
	}
	if sub, ok := keys.Cached(raw); ok {
		t.Fatalf("cached although the hash belongs to another token: %q", sub)
	}
	verify("with a colliding hash")
	now = now.Add(time.Minute)
	if sub, ok := keys.Cached(raw); ok {
		t.Fatalf("an expired token is cached: %q", sub)
	}
	if _, err := keys.Verify(raw); err == nil {
		t.Fatal("an expired token is accepted")
	}
}
