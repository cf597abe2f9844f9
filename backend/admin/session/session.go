// Package session provides sign-in sessions for the admin console: a signed text for a cookie, and a limit on failed
// sign-ins. The text does not contain the admin token, and the token cannot be derived from it. The package does not
// depend on an HTTP library.
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

// Lifetime is how long a session lasts. Use does not extend it.
const Lifetime = 8 * time.Hour

const (
	// maxText bounds the texts that Verify accepts, in bytes. A name has at most 64 bytes, and JSON may escape each byte
	// as six.
	maxText = 1024
	// maxEnded bounds how many ended sessions a process remembers.
	maxEnded = 10_000
	// storeTimeout bounds one query of the Store.
	storeTimeout = 200 * time.Millisecond
	// storeBackoff is how long the Store is not queried after a failure, so that the console stays fast while Redis is
	// down.
	storeBackoff = time.Second
)

// Session is a signed-in admin.
type Session struct {
	ID    string    `json:"i"` // random
	Actor string    `json:"a"`
	Until time.Time `json:"u"`
}

// Store shares ended sessions among processes (RedisStore).
type Store interface {
	End(ctx context.Context, id string, life time.Duration) error
	Ended(ctx context.Context, id string) (bool, error)
}

// Sessions begins and verifies sessions. All Sessions with the same secret accept each other's sessions, also after a
// restart. A new secret ends all sessions. Sessions is safe for concurrent use.
type Sessions struct {
	key   []byte
	now   func() time.Time
	store Store // may be nil

	mu         sync.Mutex
	ended      map[string]time.Time // session id to its original end
	storeAfter time.Time            // the Store is not queried before
}

// New returns Sessions. If store is nil, End affects this process alone.
func New(secret string, store Store, now func() time.Time) *Sessions {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "sluice admin session 1", sha256.Size)
	if err != nil { // fails for invalid lengths only
		panic(err)
	}
	return &Sessions{key: key, now: now, store: store, ended: map[string]time.Time{}}
}

// Begin returns a new session and the text that proves it.
func (s *Sessions) Begin(actor string) (text string, begun Session) {
	begun = Session{ID: rand.Text(), Actor: actor, Until: s.now().Add(Lifetime).UTC().Truncate(time.Second)}
	body, err := json.Marshal(begun)
	if err != nil { // strings and a time: cannot fail
		panic(err)
	}
	payload := base64.RawURLEncoding.EncodeToString(body)
	return payload + "." + base64.RawURLEncoding.EncodeToString(s.sign(payload)), begun
}

func (s *Sessions) sign(payload string) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(payload))
	return mac.Sum(nil)
}

// Verify returns the session that a text proves. ok is false if the text is forged or the session has expired or
// ended. If the Store fails, Verify accepts the session: the console must work while Redis is down.
func (s *Sessions) Verify(text string) (found Session, ok bool) {
	payload, signature, cut := strings.Cut(text, ".")
	if !cut || len(text) > maxText {
		return Session{}, false
	}
	given, err := base64.RawURLEncoding.Strict().DecodeString(signature)
	if err != nil || !hmac.Equal(given, s.sign(payload)) {
		return Session{}, false
	}
	body, err := base64.RawURLEncoding.Strict().DecodeString(payload)
	if err != nil || json.Unmarshal(body, &found) != nil || found.Actor == "" || !s.now().Before(found.Until) {
		return Session{}, false
	}
	if s.hasEnded(found) {
		return Session{}, false
	}
	return found, true
}

// hasEnded reports whether a session was ended in this or another process. It remembers a positive answer of the Store.
func (s *Sessions) hasEnded(of Session) bool {
	s.mu.Lock()
	_, ended := s.ended[of.ID]
	backoff := s.now().Before(s.storeAfter)
	s.mu.Unlock()
	if ended || s.store == nil || backoff {
		return ended
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	ended, err := s.store.Ended(ctx, of.ID)
	switch {
	case err != nil:
		s.mu.Lock()
		s.storeAfter = s.now().Add(storeBackoff)
		s.mu.Unlock()
	case ended:
		s.remember(of)
	}
	return ended && err == nil
}

// End ends a session before it expires. This process rejects the session from now on. An error means that other
// processes may still accept it.
func (s *Sessions) End(ctx context.Context, ending Session) error {
	s.remember(ending)
	if s.store == nil {
		return nil
	}
	return s.store.End(ctx, ending.ID, ending.Until.Sub(s.now()))
}

func (s *Sessions) remember(ended Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) >= maxEnded {
		now := s.now()
		for id, until := range s.ended {
			if !now.Before(until) {
				delete(s.ended, id)
			}
		}
	}
	if len(s.ended) < maxEnded {
		s.ended[ended.ID] = ended.Until
	}
}
