package worker

import (
	"context"
	"errors"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// loop takes one batch after the other.
type loop struct {
	*Worker
	stopping context.Context // done: take nothing more
	hard     context.Context // done: give up the write that is under way
	calls    context.Context // for calls to the queue, never done: cut off half way, a take would leave a lease that nobody knows of

	next      string // id of the batch to take; kept as long as it is not certain whether it was taken
	uncertain bool   // a take as next failed, and may have been carried out all the same
	ack       string // a batch that is written and not acknowledged yet

	generation int64 // of the Redis that the batch in hand was taken from; 0: any
}

func (l *loop) run() {
	l.next = l.cfg.BatchID()
	var pause backoff
	for l.stopping.Err() == nil {
		batch, err := l.take()
		switch {
		case err != nil:
			l.queueFailed("take", err)
			l.pause(&pause, KindQueue)
		case len(batch.Messages) > 0:
			pause.reset()
			l.work(batch)
		default:
			if _, err := l.queue.Wait(l.calls, l.cfg.Idle); err != nil {
				l.queueFailed("wait", err)
				l.pause(&pause, KindQueue)
			}
		}
	}
	l.settle()
}

// take acknowledges what was written and leases the next batch. After an error it asks for the same batch again: should the
// first call have been carried out, its messages come now, and not when their lease has run out.
func (l *loop) take() (queue.Batch, error) {
	if l.cfg.Source != nil {
		l.generation = l.cfg.Source.Generation() // before the call: an older one is refused, a newer one would lie
	}
	batch, lost, err := l.queue.TakeAs(l.calls, l.next, l.cfg.Batch, l.ack)
	if err != nil {
		l.uncertain = true
		return queue.Batch{}, err
	}
	if lost && !l.uncertain { // else the first call has acknowledged it
		l.leaseLost(l.ack)
	}
	l.next, l.uncertain, l.ack = l.cfg.BatchID(), false, ""
	return batch, nil
}

// settle leaves nothing leased behind.
func (l *loop) settle() {
	if l.ack != "" {
		if _, err := l.queue.Ack(l.calls, l.ack); err != nil {
			l.queueFailed("ack", err) // its lease runs out, and it is written again for nothing
		}
	}
	if l.uncertain {
		l.release(l.next)
	}
}

// work writes a batch and says what became of it. A batch written in full is acknowledged with the next take.
func (l *loop) work(b queue.Batch) {
	ctx, release := l.keepLease(b.ID)
	ctx, end := l.cfg.Tracer.Begin(ctx, b.Messages)
	failures, err := l.write(ctx, b.Messages)
	release()
	end(reasons(failures), err)
	switch {
	case errors.Is(err, store.ErrStale), (err != nil || len(failures) > 0) && l.rebuilt():
		l.handBack(b, err)
	case errors.Is(err, errLost):
		l.leaseLost(b.ID)
	case err != nil:
		l.cfg.Log.Info("worker: gives its batch back", "batch", b.ID, "orders", len(b.Messages), "why", err)
		l.release(b.ID)
	case len(failures) > 0:
		l.fail(b.ID, failures)
	default:
		l.ack = b.ID
	}
}

func reasons(failures []queue.Failure) map[sale.OrderID]string {
	if len(failures) == 0 {
		return nil
	}
	all := make(map[sale.OrderID]string, len(failures))
	for _, f := range failures {
		all[f.ID] = f.Reason
	}
	return all
}

// fail acknowledges a batch some of whose orders could not be written. A worker that stops gives up after a few attempts, and
// then the batch is tried again by another one.
func (l *loop) fail(id string, failures []queue.Failure) {
	var pause backoff
	for {
		lost, err := l.queue.Ack(l.calls, id, failures...)
		if err == nil {
			if lost && pause.n == 0 { // else an earlier call has acknowledged it
				l.leaseLost(id)
			}
			return
		}
		l.queueFailed("ack", err)
		if l.stopping.Err() != nil && pause.n >= 3 {
			l.release(id)
			return
		}
		l.pause(&pause, KindQueue)
	}
}

// rebuilt tells whether Redis was rebuilt since the batch in hand was taken.
func (l *loop) rebuilt() bool {
	return l.cfg.Source != nil && l.cfg.Source.Generation() != l.generation
}

// handBack gives up a batch that was taken from a Redis which was rebuilt since. That Redis may have lost these orders, and then nobody else has them: so it is told of
// them, for as long as it takes. What it knows already is left alone.
func (l *loop) handBack(b queue.Batch, why error) {
	l.cfg.Log.Warn("worker: Redis was rebuilt; its batch goes back", "batch", b.ID, "orders", len(b.Messages), "why", why)
	var pause backoff
	for {
		err := l.cfg.Source.HandBack(l.calls, b.Messages)
		if err == nil {
			break
		}
		l.queueFailed("hand back", err)
		if l.hard.Err() != nil {
			ids := make([]string, len(b.Messages))
			for i, m := range b.Messages {
				ids[i] = m.ID.String()
			}
			l.cfg.Log.Error("worker: ends with orders that Redis may have lost", "orders", ids)
			return
		}
		pause.wait(l.hard, &l.cfg)
	}
	l.release(b.ID) // should its lease have outlived the rebuild
}

// pause waits because a store is away.
func (l *loop) pause(b *backoff, kind string) {
	l.cfg.Metrics.Paused(kind, 1)
	defer l.cfg.Metrics.Paused(kind, -1)
	b.wait(l.stopping, &l.cfg)
}

func (l *loop) release(id string) {
	if _, err := l.queue.Release(l.calls, id); err != nil {
		l.queueFailed("release", err)
	}
}

func (l *loop) leaseLost(id string) {
	l.cfg.Metrics.LeaseLost()
	l.cfg.Log.Warn("worker: lost its lease; another worker has the batch", "batch", id)
}

func (l *loop) queueFailed(call string, err error) {
	l.cfg.Metrics.Failed(KindQueue)
	l.cfg.Log.Warn("worker: queue does not answer", "call", call, "err", err)
}

var (
	errLost     = errors.New("the lease is lost")
	errDrained  = errors.New("the time to drain is over")
	errStopping = errors.New("the worker stops and the order store is unavailable")
)

// keepLease extends a lease for as long as the work on it goes on: every third of it, so that two calls in a row may fail. The context ends, because
// of errLost, when the batch belongs to somebody else. release ends the extending, and returns when no call is under way.
func (l *loop) keepLease(id string) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(l.hard)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(max(l.queue.Lease()/3, time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			lost, err := l.queue.Extend(l.calls, id)
			switch {
			case lost:
				cancel(errLost)
			case err != nil && ctx.Err() == nil:
				l.queueFailed("extend", err)
			}
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-done
	}
}
