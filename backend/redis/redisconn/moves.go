package redisconn

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// followMoves is a hook that looks for the master again when a command is redirected.
type followMoves struct{ master *master }

func (followMoves) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h followMoves) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		h.see(err)
		return err
	}
}

func (h followMoves) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if redirected(cmd.Err()) {
				h.see(cmd.Err())
				break
			}
		}
		return err
	}
}

func (h followMoves) see(err error) {
	if err != nil && redirected(err) {
		go h.master.lookAgain()
	}
}

// redirected reports whether a node returned that another one has the slot, or that no node has it.
func redirected(err error) bool {
	if _, moved := redis.IsMovedError(err); moved {
		return true
	}
	return redis.IsClusterDownError(err)
}
