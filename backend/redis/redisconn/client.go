package redisconn

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Client is a *redis.Client. Packages use the interface instead of the client types of go-redis. The compiler generates
// the 1,500 methods of a client type again in each package that refers to the type, even if only through a field or a
// method of another type, or through an inlined function. This takes longer than compiling the rest of the package (ADR
// 49).
type Client interface {
	redis.Cmdable
	Do(ctx context.Context, args ...any) *redis.Cmd
	Process(ctx context.Context, cmd redis.Cmder) error
	AddHook(hook redis.Hook)
	Close() error
}

// Addr returns the address in the options of a client.
//
//go:noinline
func Addr(c Client) string { return c.(*redis.Client).Options().Addr }

// WithTimeout returns a client that shares the connections of c and waits this long for a reply.
//
//go:noinline
func WithTimeout(c Client, timeout time.Duration) Client {
	return c.(*redis.Client).WithTimeout(timeout)
}

// Connection is a *redis.Conn: one connection of a client, reserved for the commands of the Connection until it is
// closed.
type Connection interface {
	redis.Cmdable
	Do(ctx context.Context, args ...any) *redis.Cmd
	Wait(ctx context.Context, replicas int, timeout time.Duration) *redis.IntCmd
	Close() error
}

// Connect returns a connection of a client. It connects when it is used.
//
//go:noinline
func Connect(c Client) Connection { return c.(*redis.Client).Conn() }

// Subscription is a *redis.PubSub; see Client.
type Subscription interface {
	ReceiveTimeout(ctx context.Context, timeout time.Duration) (any, error)
	Ping(ctx context.Context, payload ...string) error
	Close() error
}

// Subscribe subscribes to a channel, on a connection of its own. It does not wait for the server.
//
//go:noinline
func Subscribe(ctx context.Context, c Client, channel string) Subscription {
	return c.(*redis.Client).Subscribe(ctx, channel)
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
	} else { // BLPop accepts only whole seconds, but Do cannot block beyond the client's read timeout
		err = c.Do(ctx, "BLPOP", key, max(timeout, time.Millisecond).Seconds()).Err()
	}
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}
