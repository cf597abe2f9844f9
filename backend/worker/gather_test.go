package worker_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/queue"
	"sluice/backend/worker"
)

// timedQueue records when batches are taken.
type timedQueue struct {
	*fakeQueue
	takes []time.Time
}

func (q *timedQueue) TakeAs(ctx context.Context, id string, n int, ack string) (queue.Batch, bool, error) {
	q.takes = append(q.takes, time.Now())
	return q.fakeQueue.TakeAs(ctx, id, n, ack)
}

// Under load the worker waits for more orders after a batch. Few orders and full batches do not wait.
func TestWorkerGathersOrdersUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const gather = 20 * time.Millisecond
		q := &timedQueue{
			fakeQueue: newQueue(orders(1), orders(7), orders(8), orders(99), orders(100), orders(100), orders(2)),
		}
		stop := start(t, q, &ledger{}, worker.Config{Concurrency: 1, Batch: 100, Gather: gather})
		<-q.emptied
		stop()
		var waits []time.Duration
		for i, at := range q.takes[1:8] {
			waits = append(waits, at.Sub(q.takes[i]))
		}
		if want := []time.Duration{0, 0, gather, gather, 0, 0, 0}; !slices.Equal(waits, want) {
			t.Errorf("waits between batches: %v, want %v", waits, want)
		}
	})
}

// A worker that stops does not wait for more orders: it acknowledges what it has written.
func TestStopEndsGathering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(orders(50), orders(50))
		stop := start(t, q, &ledger{}, worker.Config{Concurrency: 1, Gather: time.Hour})
		synctest.Wait()
		began := time.Now()
		stop()
		if waited := time.Since(began); waited != 0 {
			t.Errorf("the worker stopped after %v", waited)
		}
		q.wantCalls(t, "take 50", "ack")
	})
}
