package redisconn

import (
	"context"
	"errors"
	"time"

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

// AwaitToken removes a token from the list at key and returns true, or returns false after timeout without one. A
// timeout of half a second or more is rounded up to whole seconds. AwaitToken occupies a connection, and does not end
// earlier when ctx is cancelled. The deadline of ctx must allow for the timeout.
func AwaitToken(ctx context.Context, c Client, key string, timeout time.Duration) (found bool, err error) {
	if timeout >= time.Second/2 {
		err = c.BLPop(ctx, (timeout + time.Second - 1).Truncate(time.Second), key).Err()
	} else { // BLPop accepts only whole seconds; it alone may exceed the client's read timeout
		err = c.Do(ctx, "BLPOP", key, max(timeout, time.Millisecond).Seconds()).Err()
	}
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}
