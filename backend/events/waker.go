package events

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/redis/keyspace"
	redisscript "sluice/lua/redis"
)

// Waker tells the relay that there is something to do, wherever it runs. A call may be lost; the relay then finds out after its Poll.
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

// Wake returns at once; many calls in a short time are one. It is made for order.OnChange. While Run does not run, it does nothing that anybody sees.
func (w *Waker) Wake() {
	select {
	case w.pending <- struct{}{}:
	default:
	}
}

// Run passes on what Wake was told, until ctx ends; it returns nil.
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
