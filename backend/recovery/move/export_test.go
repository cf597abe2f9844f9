package move

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
)

// SetLock sets the duration of the lock, for a mover that is suspended past it and has not noticed.
func (m *Mover) SetLock(d time.Duration) { m.lock = d }

// AwaitReplicas is the last step of a copy to the server of c.
func AwaitReplicas(ctx context.Context, c redisconn.Client) error {
	return (&job{target: server{pinned: c}}).awaitReplicas(ctx)
}

// Migrate runs a command in place of MIGRATE, for a move with this fence. before is called when the fence has been
// compared.
func Migrate(
	ctx context.Context, c redisconn.Client, shard keyspace.Shard, fence int64, before func(), command ...any,
) error {
	conn := suspended{redisconn.Connect(c), before}
	defer conn.Close()
	return (&job{shard: shard, fence: fence}).migrate(ctx, conn, command)
}

type suspended struct {
	redisconn.Connection

	before func()
}

func (s suspended) TxPipelined(ctx context.Context, add func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	s.before()
	return s.Connection.TxPipelined(ctx, add)
}
