package guard

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// gate rejects commands without a connection while blocked returns true, so that many purchases do not open many
// connections.
type gate struct{ blocked func() bool }

func (gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if h.blocked() {
			cmd.SetErr(ErrUnverified)
			return ErrUnverified
		}
		return next(ctx, cmd)
	}
}

func (h gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if h.blocked() {
			for _, cmd := range cmds {
				cmd.SetErr(ErrUnverified)
			}
			return ErrUnverified
		}
		return next(ctx, cmds)
	}
}
