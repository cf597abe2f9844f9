package redisconn

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Around is a hook of a client. It is called for each command, and for the commands of each pipeline together. next
// executes them.
type Around func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error

// DialHook implements redis.Hook.
func (Around) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (f Around) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	one := func(ctx context.Context, cmds []redis.Cmder) error { return next(ctx, cmds[0]) }
	return func(ctx context.Context, cmd redis.Cmder) error { return f(ctx, []redis.Cmder{cmd}, one) }
}

// ProcessPipelineHook implements redis.Hook.
func (f Around) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return f(ctx, cmds, next) }
}

// connectionErrors is an Around. If a pipeline fails and none of its commands has an error, it sets the error in all of
// them. go-redis does not do so when Redis rejects a new connection, for example with WRONGPASS or NOAUTH.
func connectionErrors(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	err := next(ctx, cmds)
	if err != nil && !slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		for _, cmd := range cmds {
			cmd.SetErr(err)
		}
	}
	return err
}
