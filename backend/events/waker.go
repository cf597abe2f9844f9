package events

import (
	"context"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/redis/redisconn"
	"sluice/internal/loop"
	redisscript "sluice/lua/redis"
)

// RunWaker wakes the relay, in this or another process, when something changed, until ctx ends; it returns nil. Changes
// in a short time are coalesced. A wake-up may be lost; the relay then continues after its Poll.
func RunWaker(ctx context.Context, client redisconn.Client, space keyspace.Space, changed loop.Wake) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		call, cancel := context.WithTimeout(ctx, time.Second)
		_ = redisscript.Run(call, client, "event_wake", []string{space.EventWake()}).Err() // it may be lost
		cancel()
	}
}
