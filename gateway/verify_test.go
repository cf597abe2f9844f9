package gateway

import (
	"fmt"
	"testing"
	"time"

	"sluice/gateway/limit"
	"sluice/internal/token"
)

// Nearly all tokens of many buyers must stay in the cache. Otherwise each request would cost a signature.
func TestVerifierCachesManyBuyers(t *testing.T) {
	const buyers = limit.DefaultCapacity / 4
	key, err := token.NewKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := token.Open("", secret)
	if err != nil {
		t.Fatal(err)
	}
	v := newVerifier(keys, limit.NewNamer())
	tokens, known := make([][]byte, buyers), make([]*verified, buyers)
	for i := range tokens {
		raw, err := key.Sign(fmt.Sprint("buyer-", i), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		tokens[i] = []byte(raw)
		if known[i], err = v.verify(tokens[i]); err != nil {
			t.Fatal(err)
		}
	}
	hits := 0
	for i, raw := range tokens {
		switch v.cached(raw) {
		case known[i]:
			hits++
		case nil:
		default:
			t.Fatalf("buyer %d is identified as %+v", i, v.cached(raw))
		}
	}
	if hits < buyers*95/100 {
		t.Errorf("%d of %d buyers are cached", hits, buyers)
	}
}

func TestTokenSetReplacesWhenFull(t *testing.T) {
	var s tokenSet
	held := func() map[uint64]*verified {
		m := map[uint64]*verified{}
		for i := range s {
			if hash := s[i].hash.Load(); hash != 0 {
				m[hash] = s[i].token.Load()
			}
		}
		return m
	}
	for hash := range uint64(tokensPerSet) {
		s.add(hash+1, &verified{})
	}
	if n := len(held()); n != tokensPerSet {
		t.Fatalf("%d of %d tokens are cached in a set of that size", n, tokensPerSet)
	}
	renewed, newer := &verified{}, &verified{}
	if s.add(2, renewed); len(held()) != tokensPerSet || held()[2] != renewed {
		t.Error("a token that is added again does not replace itself")
	}
	if s.add(99, newer); len(held()) != tokensPerSet || held()[99] != newer {
		t.Error("a new token does not replace exactly one token of a full set")
	}
}
