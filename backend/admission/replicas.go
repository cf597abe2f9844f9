package admission

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"sluice/backend/sale"
)

// replicaTimeout bounds the wait for replicas, within decideTimeout. A replica that is well answers within a round trip.
const replicaTimeout = 500 * time.Millisecond

// replicas are the copies of Redis that must have an order before its buyer hears of it. The zero value is none.
type replicas struct {
	client *redis.Client
	count  int
}

// AwaitReplicas makes the Admitter say Accepted or Replayed only when that many replicas have the order; else it is an error that wraps sale.ErrUnavailable. The
// order stands, and the same request again finds it. The client is of the same Redis as the Admitter's own. It must be called before the first Admit.
func (a *Admitter) AwaitReplicas(client *redis.Client, count int) {
	a.replicas = replicas{client, count}
}

// askAndWait asks Redis about a group, and waits for the replicas if orders are among the answers. One connection does both: it leads to one server from its beginning
// to its end, while a new one may lead to another, which took over meanwhile and would vouch for orders that it never had.
func (a *Admitter) runAndWait(ctx context.Context, saleID string, group []*waiter) {
	conn := a.replicas.client.Conn()
	defer conn.Close()
	a.runScript(ctx, conn, saleID, group)
	made, found := madeOrFound(group)
	if !made && !found {
		return
	}
	if !made {
		// WAIT is about what its connection has written, and a repetition writes nothing. What is written now comes after the order.
		if err := conn.Set(ctx, a.space.ShardOf(saleID).Replicated(), "1", 0).Err(); err != nil {
			withhold(group, fmt.Errorf("wait for replicas: %w", err))
			return
		}
	}
	have, err := conn.Wait(ctx, a.replicas.count, replicaTimeout).Result()
	switch {
	case err != nil:
		withhold(group, fmt.Errorf("wait for replicas: %w", err))
	case have < int64(a.replicas.count):
		withhold(group, fmt.Errorf("%d of %d replicas have the order after %v", have, a.replicas.count, replicaTimeout))
	}
}

// orders tells whether orders were made for some of the group, by this run, and found for some.
func madeOrFound(group []*waiter) (made, found bool) {
	for _, w := range group {
		if w.err == nil {
			made = made || w.decision.Outcome == sale.Accepted
			found = found || w.decision.Outcome == sale.Replayed
		}
	}
	return made, found
}

// withhold keeps back the answers that tell of an order.
func withhold(group []*waiter, because error) {
	for _, w := range group {
		if w.err == nil && (w.decision.Outcome == sale.Accepted || w.decision.Outcome == sale.Replayed) {
			w.err = because
		}
	}
}
