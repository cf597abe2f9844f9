package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sluice/backend/redis/redisconn"
)

// replicaTimeout bounds the wait for replicas, within defaultTimeout. A healthy replica answers within a round trip.
const replicaTimeout = 500 * time.Millisecond

// runAndWait runs the script for a group, and waits for the replicas if the group got orders. Both use one connection,
// and therefore one server. A second connection could reach a new master, which would confirm orders that it never
// received.
func (a *Admitter) runAndWait(ctx context.Context, k *partKeys, group []*waiter) {
	conn := redisconn.Connect(a.cfg.ReplicaClient(k.shard))
	defer conn.Close()
	a.runScript(ctx, conn, k, group)
	if !slices.ContainsFunc(group, (*waiter).hasOrder) {
		return
	}
	if !slices.ContainsFunc(group, (*waiter).accepted) {
		// WAIT covers the writes of its connection, and a replay writes nothing. This write follows the orders.
		if err := conn.Set(ctx, k.shard.Replicated(), "1", 0).Err(); err != nil {
			failOrders(group, fmt.Errorf("wait for replicas: %w", err))
			return
		}
	}
	have, err := conn.Wait(ctx, a.cfg.Replicas, replicaTimeout).Result()
	switch {
	case err != nil:
		failOrders(group, fmt.Errorf("wait for replicas: %w", err))
	case have < int64(a.cfg.Replicas):
		failOrders(group, fmt.Errorf("%d of %d replicas have the order after %v", have, a.cfg.Replicas, replicaTimeout))
	}
}

// failOrders replaces the decisions that report an order by err.
func failOrders(group []*waiter, err error) {
	for _, w := range group {
		if w.hasOrder() {
			w.err = err
		}
	}
}
