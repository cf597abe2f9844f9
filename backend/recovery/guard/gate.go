package guard

import (
	"context"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/redisconn"
)

// gate returns a hook that rejects commands without a connection while blocked returns true, so that many purchases do
// not open many connections.
func gate(blocked func() bool) redisconn.Around {
	return func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		if !blocked() {
			return next(ctx, cmds)
		}
		for _, cmd := range cmds {
			cmd.SetErr(ErrUnverified)
		}
		return ErrUnverified
	}
}
