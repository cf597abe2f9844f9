package redisconn

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// followMoves returns a hook that looks for the master again when a command is redirected.
func followMoves(m *master) Around {
	return func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		err := next(ctx, cmds)
		if redirected(err) || slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return redirected(cmd.Err()) }) {
			go m.lookAgain()
		}
		return err
	}
}

// redirected reports whether a node returned that another one has the slot, or that no node has it.
func redirected(err error) bool {
	_, moved := redis.IsMovedError(err)
	return moved || redis.IsClusterDownError(err)
}
