package worker_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sluice/backend/sale"
	"sluice/backend/worker"
)

func TestStopFinishesTheWriteInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(orders(3), orders(1))
		writing := make(chan struct{})
		stop := start(t, q, storeFunc(func(ctx context.Context, _ []sale.Order) error {
			close(writing)
			time.Sleep(5 * time.Second)
			return ctx.Err()
		}), worker.Config{DrainTimeout: 6 * time.Second})
		<-writing
		stop()
		q.wantCalls(t, "take 3", "ack") // and takes nothing more
	})
}

func TestStopReleasesABatchAfterTheDrainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(orders(3))
		writing := make(chan struct{})
		stop := start(t, q, storeFunc(func(ctx context.Context, _ []sale.Order) error {
			close(writing)
			<-ctx.Done()
			return ctx.Err()
		}), worker.Config{DrainTimeout: 6 * time.Second})
		<-writing
		began := time.Now()
		stop()
		if took := time.Since(began); took != 6*time.Second {
			t.Errorf("stopping took %s", took)
		}
		q.wantCalls(t, "take 3", "release")
	})
}

func TestStopDoesNotWaitForAStoreThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(orders(3))
		stop := start(t, q, &ledger{refuse: func([]sale.Order) error { return errDown }},
			worker.Config{DrainTimeout: time.Hour})
		time.Sleep(time.Minute)
		began := time.Now()
		stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("stopping took %s", took)
		}
		q.wantCalls(t, "take 3", "release")
	})
}

func TestStopReleasesAnUncertainTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(orders(3))
		stop := start(t, q, storeFunc(func(context.Context, []sale.Order) error {
			q.mu.Lock()
			q.takeErrs = slices.Repeat([]error{errDown}, 1_000_000)
			q.mu.Unlock()
			return nil
		}), worker.Config{})
		time.Sleep(time.Minute)
		stop()
		q.mu.Lock()
		defer q.mu.Unlock()
		last := q.ids[len(q.ids)-1]
		if !slices.Equal(q.released, []string{last}) || !slices.Equal(q.calls[len(q.calls)-2:], []string{"ack", "release"}) {
			t.Errorf("released %q; the last calls were %q", q.released, q.calls[len(q.calls)-2:])
		}
	})
}

func TestRunReturnsWhenItsContextIsDoneAtTheStart(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("at once"))
	q := newQueue(orders(1))
	if err := worker.New(q, &ledger{}, worker.Config{}).Run(ctx); err != nil || len(q.ids) > 0 {
		t.Errorf("run: %v; it took %d batches", err, len(q.ids))
	}
}
