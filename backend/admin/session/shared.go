package session

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
)

// Shared remembers in Redis which sessions were ended early, so that all backends know. It keeps an id, with nothing to it, until the session would have ended by itself. The
// Redis may be one whose data nobody has verified: what it says can end a session, and begin none. It is safe for concurrent use.
type Shared struct {
	client redis.UniversalClient
	space  keyspace.Space
}

// NewShared makes a Shared. It does not connect yet.
func NewShared(client redis.UniversalClient, space keyspace.Space) *Shared {
	return &Shared{client, space}
}

// End remembers that a session is over; life is how long it would have lasted, and must be positive.
func (s *Shared) End(ctx context.Context, id string, life time.Duration) error {
	return s.client.Set(ctx, s.space.EndedSession(id), "", max(life, time.Second)).Err()
}

// Ended tells whether a session is over.
func (s *Shared) Ended(ctx context.Context, id string) (bool, error) {
	n, err := s.client.Exists(ctx, s.space.EndedSession(id)).Result()
	return n > 0, err
}
