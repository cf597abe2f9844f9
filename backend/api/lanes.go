package api

import (
	"context"
	"errors"
	"fmt"

	"sluice/backend/queue"
	"sluice/backend/sale"
)

// Lanes are the queues of all lanes, seen as one.
type Lanes []DeadLetters

// DeadLetter finds a dead letter in whatever lane it is. It returns sale.ErrNotFound.
func (l Lanes) DeadLetter(ctx context.Context, id sale.OrderID) (queue.DeadLetter, error) {
	for _, lane := range l {
		if d, err := lane.DeadLetter(ctx, id); !errors.Is(err, sale.ErrNotFound) {
			return d, err
		}
	}
	return queue.DeadLetter{}, fmt.Errorf("dead letter %s: %w", id, sale.ErrNotFound)
}

// Stats adds the lanes up, one after the other; the oldest age is that of the worst.
func (l Lanes) Stats(ctx context.Context) (queue.Stats, error) {
	var sum queue.Stats
	for _, lane := range l {
		s, err := lane.Stats(ctx)
		if err != nil {
			return queue.Stats{}, err
		}
		sum.Ready += s.Ready
		sum.Delayed += s.Delayed
		sum.Leased += s.Leased
		sum.Leases += s.Leases
		sum.Dead += s.Dead
		sum.OldestAge = max(sum.OldestAge, s.OldestAge)
	}
	return sum, nil
}
