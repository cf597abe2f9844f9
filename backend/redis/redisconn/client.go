package redisconn

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Client runs commands. Packages that need no connection of their own use it instead of the clients of go-redis: the
// compiler generates the 1,500 methods of a client again in every package that refers to one, which takes longer than
// the rest of the package (ADR 49).
type Client interface {
	redis.Cmdable
	Do(ctx context.Context, args ...any) *redis.Cmd
}

// Writable returns nil if the Redis that holds key accepts writes, and otherwise the error with which it would reject
// an order. It writes nothing: SETRANGE with an empty value changes no key.
func Writable(ctx context.Context, c Client, key string) error {
	return c.SetRange(ctx, key, 0, "").Err()
}
