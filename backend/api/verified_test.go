package api

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// counting is a Verifier for which "good:<name>" is valid for a minute.
type counting struct {
	mu    sync.Mutex
	calls int
	now   time.Time
}

func (c *counting) VerifyUntil(raw string) (string, time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	name, ok := strings.CutPrefix(raw, "good:")
	if !ok || !c.now.Before(time.Unix(1060, 0)) {
		return "", time.Time{}, errors.New("bad")
	}
	return name, time.Unix(1060, 0), nil
}

func (c *counting) clock() time.Time { return c.now }

func TestVerifiedTokensAreRememberedUntilTheyExpire(t *testing.T) {
	tokens := &counting{now: time.Unix(1000, 0)}
	v := newVerified(tokens, 1000, tokens.clock)
	for range 5 {
		if name, err := v.buyer("good:ann"); name != "ann" || err != nil {
			t.Fatalf("%q, %v", name, err)
		}
	}
	if tokens.calls != 1 {
		t.Errorf("verified %d times", tokens.calls)
	}
	tokens.now = time.Unix(1060, 0)
	if name, err := v.buyer("good:ann"); err == nil {
		t.Errorf("an expired token still names %q", name)
	}
}

func TestBadTokensAreNotRemembered(t *testing.T) {
	tokens := &counting{now: time.Unix(1000, 0)}
	v := newVerified(tokens, 1000, tokens.clock)
	for _, raw := range []string{"bad", "bad", "good:", "good:a\x00b", "good:" + strings.Repeat("a", 256)} {
		if name, err := v.buyer(raw); err == nil {
			t.Errorf("%q names %q", raw, name)
		}
	}
	if tokens.calls != 5 {
		t.Errorf("verified %d times", tokens.calls)
	}
	for i := range v.shards {
		if len(v.shards[i].good) > 0 {
			t.Error("a bad token is remembered")
		}
	}
}

func TestVerifiedTokensAreBounded(t *testing.T) {
	tokens := &counting{now: time.Unix(1000, 0)}
	v := newVerified(tokens, 640, tokens.clock)
	var users sync.WaitGroup
	for u := range 4 {
		users.Go(func() {
			for i := range 5000 {
				raw := fmt.Sprintf("good:%d", (i*7+u)%3000)
				if name, err := v.buyer(raw); err != nil || "good:"+name != raw {
					t.Errorf("%s names %q, %v", raw, name, err)
				}
			}
		})
	}
	users.Wait()
	total := 0
	for i := range v.shards {
		total += len(v.shards[i].good)
	}
	if total > 640 {
		t.Errorf("%d tokens are remembered", total)
	}
}

// The header's memory is the server's: a remembered name must not change when the next request overwrites it.
func TestRememberedBuyerIsACopy(t *testing.T) {
	w := newWorld()
	s := w.serve(t)
	ann, zoe := bearerOf(t, "ann"), bearerOf(t, "zoe")
	for _, auth := range []string{ann, zoe, ann, zoe} {
		s.ask("POST", "/v1/sales/drop/orders", "", "Authorization: "+auth)
	}
	var got []string
	w.do(func() {
		for _, r := range w.requests {
			got = append(got, r.Buyer)
		}
	})
	if strings.Join(got, " ") != "ann zoe ann zoe" {
		t.Errorf("buyers %v", got)
	}
}
