package session

import (
	"context"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
)

// RedisStore keeps the ids of ended sessions in Redis until the sessions would have expired. It may use a Redis
// server whose data is not verified: a false entry can end a session but not begin one. It is safe for concurrent
// use.
type RedisStore struct {
	client redisconn.Client
	space  keyspace.Space
}

// NewRedisStore returns a RedisStore. It does not connect yet.
func NewRedisStore(client redisconn.Client, space keyspace.Space) *RedisStore {
	return &RedisStore{client, space}
}

// End records that a session has ended; life is its remaining lifetime. Entries are kept for at least a second.
func (s *RedisStore) End(ctx context.Context, id string, life time.Duration) error {
	return s.client.Set(ctx, s.space.EndedSession(id), "", max(life, time.Second)).Err()
}

// Ended reports whether a session has ended.
func (s *RedisStore) Ended(ctx context.Context, id string) (bool, error) {
	n, err := s.client.Exists(ctx, s.space.EndedSession(id)).Result()
	return n > 0, err
}
