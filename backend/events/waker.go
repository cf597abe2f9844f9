package events

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	redisscript "sluice/lua/redis"
)

// Waker wakes the relay, in this or another process. A wake-up may be lost; the relay then continues after its Poll.
type Waker struct {
	client  redis.UniversalClient
	space   keyspace.Space
	script  *redis.Script
	pending chan struct{}
}

// NewWaker makes a Waker. It does not connect yet.
func NewWaker(client redis.UniversalClient, space keyspace.Space) *Waker {
	return &Waker{client: client, space: space, script: redisscript.Load("event_wake"), pending: make(chan struct{}, 1)}
}

// Wake returns immediately and coalesces calls in a short time. It is meant for store.OnChange. Without a running Run
// it has no effect.
func (w *Waker) Wake() {
	select {
	case w.pending <- struct{}{}:
	default:
	}
}

// Run publishes wake-ups until ctx ends; it returns nil.
func (w *Waker) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.pending:
		}
		call, cancel := context.WithTimeout(ctx, time.Second)
		_ = w.script.Run(call, w.client, []string{w.space.EventWake()}).Err() // see Waker
		cancel()
	}
}
