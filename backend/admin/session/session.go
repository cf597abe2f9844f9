// Package session remembers in a browser that an operator has signed in: a signed text that goes into a cookie, and a bound on failed tries. It is not the
// operator's token, and nobody can make the token from it. It knows no HTTP library.
package session

import (
	"context"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"sync"
	"time"
)

// Life is how long a session lasts: a night of work. It is not prolonged.
const Life = 8 * time.Hour

const (
	// maxText bounds what is looked at: a name has 64 bytes at most.
	maxText = 512
	// maxEnded bounds how many sessions that were ended early are remembered.
	maxEnded = 10_000
	// askFor bounds how long others are asked whether a session is over.
	askFor = 200 * time.Millisecond
	// silence is how long they are not asked again after they did not answer: a desk without Redis must not be slow as well.
	silence = time.Second
)

// Session is an operator who has signed in.
type Session struct {
	ID    string    `json:"i"` // random
	Actor string    `json:"a"`
	Until time.Time `json:"u"`
}

// Others tell all Keepers of sessions that were ended early (Shared).
type Others interface {
	End(ctx context.Context, id string, life time.Duration) error
	Ended(ctx context.Context, id string) (bool, error)
}

// Keeper begins sessions and recognises them. All that have the same secret recognise each other's, also after a restart; a new secret ends all. It is
// safe for concurrent use.
type Keeper struct {
	key    []byte
	now    func() time.Time
	others Others // may be nil

	mu    sync.Mutex
	ended map[string]time.Time // id to when it would have ended by itself
	again time.Time            // when others are to be asked again who did not answer
}

// New makes a Keeper. others may be nil: what it ends, it alone knows. now may be nil: time.Now.
func New(secret string, others Others, now func() time.Time) *Keeper {
	if now == nil {
		now = time.Now
	}
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "sluice operator session 1", sha256.Size)
	if err != nil { // only for absurd lengths
		panic(err)
	}
	return &Keeper{key: key, now: now, others: others, ended: map[string]time.Time{}}
}

// Begin makes a session, and the text that proves it.
func (k *Keeper) Begin(actor string) (text string, s Session) {
	s = Session{ID: rand.Text(), Actor: actor, Until: k.now().Add(Life).UTC().Truncate(time.Second)}
	body, err := json.Marshal(s)
	if err != nil { // strings and a time: cannot fail
		panic(err)
	}
	payload := base64.RawURLEncoding.EncodeToString(body)
	return payload + "." + base64.RawURLEncoding.EncodeToString(k.sign(payload)), s
}

func (k *Keeper) sign(payload string) []byte {
	mac := hmac.New(sha256.New, k.key)
	mac.Write([]byte(payload))
	return mac.Sum(nil)
}

// Who tells whose session a text proves; ok is false for one that is forged, over or ended. Others who do not answer have ended nothing: operators must
// reach the desk just when a store is down.
func (k *Keeper) Who(text string) (s Session, ok bool) {
	payload, signature, cut := strings.Cut(text, ".")
	if !cut || len(text) > maxText {
		return Session{}, false
	}
	given, err := base64.RawURLEncoding.Strict().DecodeString(signature)
	if err != nil || !hmac.Equal(given, k.sign(payload)) {
		return Session{}, false
	}
	body, err := base64.RawURLEncoding.Strict().DecodeString(payload)
	if err != nil || json.Unmarshal(body, &s) != nil || s.Actor == "" || !k.now().Before(s.Until) {
		return Session{}, false
	}
	if k.over(s) {
		return Session{}, false
	}
	return s, true
}

// over tells whether a session was ended here or elsewhere. What others say once is not asked again.
func (k *Keeper) over(s Session) bool {
	k.mu.Lock()
	_, over := k.ended[s.ID]
	silent := k.now().Before(k.again)
	k.mu.Unlock()
	if over || k.others == nil || silent {
		return over
	}
	ctx, cancel := context.WithTimeout(context.Background(), askFor)
	defer cancel()
	over, err := k.others.Ended(ctx, s.ID)
	switch {
	case err != nil:
		k.mu.Lock()
		k.again = k.now().Add(silence)
		k.mu.Unlock()
	case over:
		k.remember(s)
	}
	return over && err == nil
}

// End ends a session before its time; the browser forgets the text as well. This Keeper remembers it as long as its process lives, whatever the others do: an error
// says that they may not have heard of it.
func (k *Keeper) End(ctx context.Context, s Session) error {
	k.remember(s)
	if k.others == nil {
		return nil
	}
	return k.others.End(ctx, s.ID, s.Until.Sub(k.now()))
}

func (k *Keeper) remember(s Session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.ended) >= maxEnded {
		now := k.now()
		for id, until := range k.ended {
			if !now.Before(until) {
				delete(k.ended, id)
			}
		}
	}
	if len(k.ended) < maxEnded {
		k.ended[s.ID] = s.Until
	}
}
