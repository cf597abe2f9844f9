package testenv

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Commands is a hook of a Redis client. It is called for each command, except those of pipelines, and executes it with
// next.
type Commands func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

// DialHook does nothing.
func (Commands) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook does nothing.
func (Commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook calls the function.
func (f Commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return f(ctx, cmd, next) }
}

// Twice executes a command twice, as a client does after a lost reply. Use it as Commands(Twice).
func Twice(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	_ = next(ctx, cmd)
	return next(ctx, cmd)
}
