package worker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/store"
)

// write stores the orders. When the store refuses them it writes the halves, and so finds the k that are at fault among n with about 2k*log2(n) writes.
// The failures are theirs; every other order is stored. An error means that some may not be stored, and says why: errLost, errDrained or errStopping.
func (l *loop) write(ctx context.Context, orders []sale.Order) ([]queue.Failure, error) {
	err := l.persist(ctx, orders)
	switch {
	case err == nil:
		return nil, nil
	case !isFault(err):
		return nil, err
	case len(orders) == 1:
		return []queue.Failure{l.failure(ctx, orders[0], err)}, nil
	}
	half := len(orders) / 2
	first, err := l.write(ctx, orders[:half])
	if err != nil {
		return nil, err
	}
	second, err := l.write(ctx, orders[half:])
	return append(first, second...), err
}

// failure is permanent when the store has looked at the order and refused it. Any other error may be a fault in the store, which
// a person can mend: the order is tried again, a few times.
func (l *loop) failure(ctx context.Context, o sale.Order, err error) queue.Failure {
	refused := errors.Is(err, store.ErrRejected)
	kind := KindError
	if refused {
		kind = KindRejected
	}
	l.cfg.Metrics.Failed(kind)
	l.cfg.Log.ErrorContext(ctx, "worker: an order could not be written", "order", o.ID.String(), "sale", o.SaleID, "permanent", refused, "err", err)
	return queue.Failure{ID: o.ID, Reason: err.Error(), Permanent: refused}
}

func isFault(err error) bool {
	return !errors.Is(err, store.ErrStale) && !errors.Is(err, errLost) && !errors.Is(err, errDrained) && !errors.Is(err, errStopping)
}

// persist writes the orders as they are, for as long as it takes: while the store is unavailable it pauses and tries again, and
// that counts against no order. A worker that is to stop does not wait for the store.
func (l *loop) persist(ctx context.Context, orders []sale.Order) error {
	var pause backoff
	for {
		start := time.Now()
		err := l.attempt(ctx, orders)
		switch {
		case err == nil:
			l.cfg.Metrics.BatchWritten(len(orders), time.Since(start))
			if pause.n > 0 {
				l.cfg.Log.InfoContext(ctx, "worker: the order store is back", "attempts", pause.n+1)
			}
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !errors.Is(err, sale.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		l.cfg.Metrics.Failed(KindUnavailable)
		if pause.n == 0 {
			l.cfg.Log.WarnContext(ctx, "worker: the order store is unavailable; trying on", "err", err)
		}
		if l.stopping.Err() != nil {
			return errStopping
		}
		l.pause(&pause, KindUnavailable)
	}
}

// attempt writes once. A store that panics has failed; the worker goes on, or one bad order would take every worker with it.
func (l *loop) attempt(ctx context.Context, orders []sale.Order) (err error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.WriteTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			l.cfg.Log.ErrorContext(ctx, "worker: the order store panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the order store panicked: %v", p)
		}
	}()
	return l.store.Write(store.AtGeneration(ctx, l.generation), orders)
}
