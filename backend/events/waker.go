package events

import (
	"context"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/internal/loop"
	redisscript "sluice/lua/redis"
)

// Waker wakes the relay, in this or another process. A wake-up may be lost; the relay then continues after its Poll.
type Waker struct {
	client  redisconn.Client
	space   keyspace.Space
	pending loop.Wake
}

// NewWaker returns a Waker. It does not connect to Redis.
func NewWaker(client redisconn.Client, space keyspace.Space) *Waker {
	return &Waker{client: client, space: space, pending: loop.NewWake()}
}

// Wake returns immediately and coalesces calls in a short time. It is meant for store.OnChange. Without a running Run
// it has no effect.
func (w *Waker) Wake() { w.pending.Up() }

// Run publishes wake-ups until ctx ends; it returns nil.
func (w *Waker) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.pending:
		}
		call, cancel := context.WithTimeout(ctx, time.Second)
		_ = redisscript.Run(call, w.client, "event_wake", []string{w.space.EventWake()}).Err() // see Waker
		cancel()
	}
}
