// Package queuetest takes batches from queues in tests.
package queuetest

import (
	"context"

	"sluice/backend/queue"
)

// Take is List.TakeAs with the first batch of a new consumer.
func Take(ctx context.Context, l *queue.List, limit int, ack string) (b queue.Batch, lost bool, err error) {
	consumer, err := l.Register(ctx, queue.NewConsumerName())
	if err != nil {
		return queue.Batch{}, false, err
	}
	return l.TakeAs(ctx, consumer.BatchID(1), limit, ack)
}
