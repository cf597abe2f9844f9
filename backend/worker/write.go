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

// write stores the orders. When the store rejects them, it bisects: k rejected orders among n take about 2k*log2(n)
// writes. It returns a failure for each rejected order; all others are stored. An error means that some orders may
// not be stored: it is errLost, errDrained, errStopping or store.ErrStale.
func (l *batchLoop) write(ctx context.Context, orders []sale.Order) ([]queue.Failure, error) {
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

// failure is permanent when the store rejected the order. After any other error the queue retries the order up to its
// limit of attempts.
func (l *batchLoop) failure(ctx context.Context, o sale.Order, err error) queue.Failure {
	rejected := errors.Is(err, store.ErrRejected)
	kind, msg := KindError, "worker: an order was not written, and is retried up to its limit of attempts"
	if rejected {
		kind, msg = KindRejected, "worker: the database rejects an order, which becomes a dead letter: see sluice dead list"
	}
	l.cfg.Metrics.Failed(kind)
	l.cfg.Log.ErrorContext(ctx, msg, "order", o.ID.String(), "sale", o.SaleID, "err", err)
	return queue.Failure{ID: o.ID, Reason: err.Error(), Permanent: rejected}
}

func isFault(err error) bool {
	return !errors.Is(err, store.ErrStale) && !errors.Is(err, errLost) && !errors.Is(err, errDrained) &&
		!errors.Is(err, errStopping)
}

// persist writes the orders in one transaction. While the store is unavailable it pauses and retries without a limit,
// and counts no attempt of an order. During shutdown it returns errStopping instead.
func (l *batchLoop) persist(ctx context.Context, orders []sale.Order) error {
	var pause backoff
	for {
		start := time.Now()
		err := l.attempt(ctx, orders)
		switch {
		case err == nil:
			l.cfg.Metrics.BatchWritten(len(orders), time.Since(start))
			if pause.n > 0 {
				l.cfg.Log.InfoContext(ctx, "worker: the store is available again", "attempts", pause.n+1)
			}
			return nil
		case l.hard.Err() != nil:
			return errDrained
		case ctx.Err() != nil:
			return errLost
		case !errors.Is(err, sale.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		l.cfg.Metrics.Failed(KindUnavailable)
		if pause.n == 0 {
			l.cfg.Log.WarnContext(ctx, "worker: the store is unavailable, retrying", "err", err)
		}
		if l.stopping.Err() != nil {
			return errStopping
		}
		l.pause(&pause, KindUnavailable)
	}
}

// attempt writes once. It returns a panic of the store as an error, so that one order cannot crash every worker.
func (l *batchLoop) attempt(ctx context.Context, orders []sale.Order) (err error) {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.WriteTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			l.cfg.Log.ErrorContext(ctx, "worker: the store panicked", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("the store panicked: %v", p)
		}
	}()
	return l.store.Write(store.WithGeneration(ctx, l.cfg.Shard, l.generation), orders)
}
