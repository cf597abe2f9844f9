package session

import (
	"context"
	"encoding/base64"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"sluice/backend/redis/keyspace"
	"sluice/test/testenv"
)

const secret = "the admin token"

func TestSessionIsValidInEveryProcessUntilItEnds(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	clock := func() time.Time { return now }
	k := New(secret, nil, clock)
	text, s := k.Begin("Zoë 鞋")
	other := New(secret, nil, clock) // another backend, or the same one after a restart
	for _, keeper := range []*Sessions{k, other} {
		if who, ok := keeper.Verify(text); !ok || who != s || who.Actor != "Zoë 鞋" {
			t.Fatalf("%+v, %v", who, ok)
		}
	}
	if strings.Contains(text, secret) {
		t.Error("the text contains the secret")
	}
	if _, ok := New(secret+"!", nil, clock).Verify(text); ok {
		t.Error("the session is valid with a new secret")
	}
	now = now.Add(Lifetime - time.Second)
	if _, ok := other.Verify(text); !ok {
		t.Error("the session ends early")
	}
	now = now.Add(time.Second)
	if _, ok := other.Verify(text); ok {
		t.Error("the session does not end")
	}
}

// JSON escapes each byte of such a name as six.
func TestSessionOfTheLongestNameIsValid(t *testing.T) {
	k := New(secret, nil, time.Now)
	text, s := k.Begin(strings.Repeat("&", 64))
	if got, ok := k.Verify(text); !ok || got != s {
		t.Errorf("a text of %d bytes is rejected", len(text))
	}
}

func TestEndedSessionIsRejected(t *testing.T) {
	k := New(secret, nil, time.Now)
	first, s := k.Begin("ann")
	second, _ := k.Begin("ann")
	if err := k.End(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, ok := k.Verify(first); ok {
		t.Error("the session is still valid")
	}
	if _, ok := k.Verify(second); !ok {
		t.Error("another session of the same admin ended too")
	}
}

func TestEndedSessionsAreRemovedAfterTheirExpiry(t *testing.T) {
	now := time.Unix(0, 0)
	k := New(secret, nil, func() time.Time { return now })
	for range maxEnded {
		_, s := k.Begin("ann")
		if err := k.End(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(Lifetime)
	text, s := k.Begin("ann")
	if err := k.End(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, ok := k.Verify(text); ok || len(k.ended) != 1 {
		t.Errorf("%d ended sessions are stored", len(k.ended))
	}
}

func TestForgedSessionIsRejected(t *testing.T) {
	k := New(secret, nil, time.Now)
	text, _ := k.Begin("ann")
	payload, signature, _ := strings.Cut(text, ".")
	for name, forged := range map[string]string{
		"nothing": "", "a dot": ".", "no signature": payload, "an empty one": payload + ".",
		"another's":    payload + "." + strings.Repeat("A", len(signature)),
		"another name": base64.RawURLEncoding.EncodeToString([]byte(`{"i":"x","a":"eve","u":"2999-01-01T00:00:00Z"}`)) + "." + signature,
		"long":         strings.Repeat("a", 10_000) + "." + signature, "padded": text + "=", "with more": text + ".x",
		"unused bits":    text[:len(text)-1] + string(text[len(text)-1]+1),
		"signed nothing": "." + base64.RawURLEncoding.EncodeToString(k.sign("")),
		"no JSON":        "eA." + base64.RawURLEncoding.EncodeToString(k.sign("eA")),
	} {
		if s, ok := k.Verify(forged); ok {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestAttemptsOfOneNetworkAreLimited(t *testing.T) {
	tries, now := NewAttempts(), time.Unix(1000, 0)
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for i := range attemptBurst {
		if _, ok := tries.Allow(a, now); !ok {
			t.Fatalf("try %d", i)
		}
	}
	for range 100 { // rejected attempts do not extend the wait
		if wait, ok := tries.Allow(a, now); ok || wait > attemptInterval || wait <= attemptInterval-time.Second {
			t.Fatalf("one more: %v, %v", wait, ok)
		}
	}
	if _, ok := tries.Allow(b, now); !ok {
		t.Error("another address")
	}
	if _, ok := tries.Allow(a, now.Add(attemptInterval)); !ok {
		t.Error("after a while")
	}
	tries.Reset(a)
	if _, ok := tries.Allow(a, now.Add(attemptInterval)); !ok {
		t.Error("a session signed with the old secret is valid")
	}
	for i := range attemptBurst + 1 {
		if _, ok := tries.Allow(netip.MustParseAddr("2001:db8::"+string(rune('1'+i))), now); ok != (i < attemptBurst) {
			t.Errorf("address %d of one network: %v", i, ok)
		}
	}
}

func TestAttemptsUseBoundedMemory(t *testing.T) {
	tries, now := NewAttempts(), time.Unix(1000, 0)
	passed := 0
	for i := range 10 * maxNetworks {
		if _, ok := tries.Allow(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now); ok {
			passed++
		}
	}
	if len(tries.byNetwork) > maxNetworks+1 || passed > maxNetworks+attemptBurst {
		t.Errorf("%d addresses, %d tries", len(tries.byNetwork), passed)
	}
	if _, ok := tries.Allow(netip.MustParseAddr("192.0.2.1"), now.Add(time.Hour)); !ok || len(tries.byNetwork) > 1 {
		t.Errorf("%d addresses are remembered for an hour", len(tries.byNetwork))
	}
}

// A sign-out at one backend ends the session at all of them, for as long as it would have lasted. While Redis is down,
// each backend rejects the sessions that it knows to have ended.
func TestSessionEndsInAllProcesses(t *testing.T) {
	mini := miniredis.RunT(t)
	client := testenv.NewOnceClient(mini.Addr())
	t.Cleanup(func() { _ = client.Close() })
	backend := func() *Sessions { return New(secret, NewRedisStore(client, keyspace.Space{}), time.Now) }
	here, there, late := backend(), backend(), backend()
	text, s := here.Begin("ann")
	kept, _ := here.Begin("ann")
	if _, ok := there.Verify(text); !ok {
		t.Fatal("not known elsewhere")
	}
	if err := here.End(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, ok := there.Verify(text); ok {
		t.Error("the session is still valid elsewhere")
	}
	if _, ok := there.Verify(kept); !ok {
		t.Error("another session of the same admin ended too")
	}
	key := keyspace.Space{}.EndedSession(s.ID)
	if left := mini.TTL(key); left <= Lifetime-time.Minute || left > Lifetime {
		t.Errorf("remembered for %s", left)
	}
	mini.Close()
	if _, ok := there.Verify(text); ok {
		t.Error("it is valid again where it was known to be over")
	}
	if _, ok := late.Verify(kept); !ok {
		t.Error("no session is valid without Redis")
	}
	if err := here.End(t.Context(), s); err == nil {
		t.Error("no error, although the other processes were not informed")
	}
	if _, ok := here.Verify(text); ok {
		t.Error("the session is still valid where it was ended")
	}
}

// failingStore always fails.
type failingStore struct{ queries int }

func (o *failingStore) End(context.Context, string, time.Duration) error {
	return errors.New("no answer")
}
func (o *failingStore) Ended(context.Context, string) (bool, error) {
	o.queries++
	return false, errors.New("no answer")
}

func TestFailingStoreIsQueriedOncePerBackoff(t *testing.T) {
	now, failing := time.Unix(1_800_000_000, 0), &failingStore{}
	k := New(secret, failing, func() time.Time { return now })
	text, _ := k.Begin("ann")
	for i := range 3 {
		for range 10 {
			if _, ok := k.Verify(text); !ok {
				t.Fatal("no session is valid")
			}
		}
		if failing.queries != i+1 {
			t.Errorf("%d queries in %d seconds", failing.queries, i+1)
		}
		now = now.Add(storeBackoff)
	}
}
