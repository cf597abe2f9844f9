package move

import (
	"context"
	"time"

	"sluice/backend/redis/redisconn"
)

// SetLock sets the duration of the lock, for a mover that is suspended past it and has not noticed.
func (m *Mover) SetLock(d time.Duration) { m.lock = d }

// AwaitReplicas is the last step of a copy to the server of c.
func AwaitReplicas(ctx context.Context, c redisconn.Client) error {
	return (&job{target: server{pinned: c}}).awaitReplicas(ctx)
}
