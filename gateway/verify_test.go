package gateway

import (
	"fmt"
	"testing"
	"time"

	"sluice/gateway/limit"
	"sluice/internal/token"
)

// A crowd of buyers who come in turn is remembered nearly whole: without that, each of them costs a signature each time.
func TestACrowdOfBuyersIsRemembered(t *testing.T) {
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
	again := 0
	for i, raw := range tokens {
		switch v.recall(raw) {
		case known[i]:
			again++
		case nil:
		default:
			t.Fatalf("buyer %d is taken for %+v", i, v.recall(raw))
		}
	}
	if again < buyers*95/100 {
		t.Errorf("%d of %d buyers were remembered", again, buyers)
	}
}

func TestTokensShareASetUntilItIsFull(t *testing.T) {
	var s placeSet
	held := func() map[uint64]*verified {
		m := map[uint64]*verified{}
		for i := range s {
			if hash := s[i].hash.Load(); hash != 0 {
				m[hash] = s[i].token.Load()
			}
		}
		return m
	}
	for hash := range uint64(placesOfSet) {
		s.keep(hash+1, &verified{})
	}
	if n := len(held()); n != placesOfSet {
		t.Fatalf("%d of %d tokens are held in a set that has room for all", n, placesOfSet)
	}
	renewed, newer := &verified{}, &verified{}
	if s.keep(2, renewed); len(held()) != placesOfSet || held()[2] != renewed {
		t.Error("a token that is kept again does not take its own place")
	}
	if s.keep(99, newer); len(held()) != placesOfSet || held()[99] != newer {
		t.Error("in a full set, a newer token does not take the place of one other")
	}
}
