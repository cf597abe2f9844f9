// Package session remembers in a browser that an operator has signed in: a signed text that goes into a cookie, and a bound on failed tries. It is not the
// operator's token, and nobody can make the token from it. It knows no HTTP library.
package session

import (
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
)

// Session is an operator who has signed in.
type Session struct {
	ID    string    `json:"i"` // random
	Actor string    `json:"a"`
	Until time.Time `json:"u"`
}

// Keeper begins sessions and recognises them. All that have the same secret recognise each other's, also after a restart; a new secret ends all. It is
// safe for concurrent use.
type Keeper struct {
	key []byte
	now func() time.Time

	mu    sync.Mutex
	ended map[string]time.Time // id to when it would have ended by itself
}

// New makes a Keeper. now may be nil: time.Now.
func New(secret string, now func() time.Time) *Keeper {
	if now == nil {
		now = time.Now
	}
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "sluice operator session 1", sha256.Size)
	if err != nil { // only for absurd lengths
		panic(err)
	}
	return &Keeper{key: key, now: now, ended: map[string]time.Time{}}
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

// Who tells whose session a text proves; ok is false for one that is forged, over or ended.
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
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, over := k.ended[s.ID]; over {
		return Session{}, false
	}
	return s, true
}

// End ends a session before its time. This Keeper alone remembers it, as long as its process lives; the browser forgets the text as well.
func (k *Keeper) End(s Session) {
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
