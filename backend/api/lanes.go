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

// ByLane counts the lanes one after the other.
func (l Lanes) ByLane(ctx context.Context) ([]queue.Stats, error) {
	all := make([]queue.Stats, len(l))
	for i, lane := range l {
		var err error
		if all[i], err = lane.Stats(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Stats adds the lanes up; the oldest age is that of the worst.
func (l Lanes) Stats(ctx context.Context) (queue.Stats, error) {
	all, err := l.ByLane(ctx)
	return sumOf(all), err
}

func sumOf(lanes []queue.Stats) queue.Stats {
	var sum queue.Stats
	for _, s := range lanes {
		sum.Ready += s.Ready
		sum.Delayed += s.Delayed
		sum.Leased += s.Leased
		sum.Leases += s.Leases
		sum.Dead += s.Dead
		sum.OldestAge = max(sum.OldestAge, s.OldestAge)
	}
	return sum
}
