package worker

import (
	"context"
	"errors"
	"time"

	"sluice/backend/queue"
	"sluice/backend/sale"
	"sluice/backend/store"
	"sluice/backend/telemetry"
	"sluice/internal/loop"
)

// batchLoop takes, writes and acknowledges one batch after the other. Run starts Config.Concurrency loops.
type batchLoop struct {
	*Worker
	stopping context.Context // done: take no further batch
	hard     context.Context // done: cancel the write in progress
	calls    context.Context // for calls to the queue; never done, because a cancelled take may leave an unknown lease

	consumer  queue.Consumer // empty: not registered
	batches   int            // number of the consumer's last batch
	next      string         // id of the next batch; kept until a take with it has returned
	uncertain bool           // a take with id next returned an error and may have been executed
	ack       string         // a batch that is committed and not acknowledged

	takeFails, waitFails bool // the last such call failed, which was logged

	generation int64   // of the Redis data that the current batch was taken from; 0: any
	outdated   backoff // between batches that are stale, until the new generation of Redis is known
}

func (l *batchLoop) run() {
	var pause backoff
	for l.stopping.Err() == nil {
		batch, err := l.take()
		if !l.succeeded(&l.takeFails, "take", err) {
			l.pause(&pause, KindQueue)
			continue
		}
		if len(batch.Messages) > 0 {
			pause.reset()
			l.process(batch)
			l.gather(len(batch.Messages))
			continue
		}
		if !l.succeeded(&l.waitFails, "wait", l.await()) {
			l.pause(&pause, KindQueue)
		}
	}
	l.finish()
}

// await returns when a message may be ready, or when the worker stops. One loop at a time waits in Redis. When it
// returns, the next loop waits in Redis. A take that leaves messages in the queue adds a wake-up token, so as many
// loops are woken as there is work for. Without a token, the queue is checked every Config.Idle, because a process that
// crashes after it removed the token leaves messages.
func (l *batchLoop) await() error {
	for {
		select {
		case l.waiting <- struct{}{}:
		case <-l.stopping.Done():
			return nil
		}
		again, err := l.awaitRedis()
		<-l.waiting
		if err != nil || !again {
			return err
		}
	}
}

// awaitRedis waits in Redis for at most Config.Idle. It reports whether the queue was empty after that.
func (l *batchLoop) awaitRedis() (empty bool, err error) {
	select {
	case <-l.stopping.Done():
		return false, nil
	default:
	}
	woken, err := l.queue.Wait(l.calls, l.cfg.Idle)
	if err != nil || woken {
		return false, err
	}
	return l.queue.Empty(l.calls)
}

// busyBatch is the number of orders from which a batch is a sign of load.
const busyBatch = 8

// gather waits after a batch of n orders, so that the next one is larger: a transaction costs as much as 40 orders. It
// does not wait after a batch of fewer than busyBatch orders, or after a full batch, which is the sign of a backlog.
func (l *batchLoop) gather(n int) {
	if n >= busyBatch && n < l.cfg.Batch {
		loop.Sleep(l.stopping, l.cfg.Gather)
	}
}

// take acknowledges the written batch and leases the next one. After an error it repeats the call with the same id:
// if the first call was executed, the same messages are returned now instead of after their lease has expired.
func (l *batchLoop) take() (queue.Batch, error) {
	if l.cfg.Source != nil {
		l.generation = l.cfg.Source.Generation() // read before the call: writes with an older generation are rejected
	}
	if l.next == "" {
		if err := l.nameBatch(); err != nil {
			return queue.Batch{}, err
		}
	}
	batch, lost, err := l.queue.TakeAs(l.calls, l.next, l.cfg.Batch, l.ack)
	switch {
	case errors.Is(err, queue.ErrUnregistered):
		if l.uncertain {
			l.release(l.next)
		}
		l.consumer, l.next = "", ""
		return queue.Batch{}, err
	case err != nil:
		l.uncertain = true
		return queue.Batch{}, err
	}
	if lost && !l.uncertain { // otherwise the first call acknowledged it
		l.cfg.Metrics.LeaseLost()
		l.cfg.Log.Warn("worker: the lease of a written batch was lost before it was acknowledged", "batch", l.ack)
	}
	l.next, l.uncertain, l.ack = "", false, ""
	return batch, nil
}

// nameBatch sets the id of the next batch. A loop without a consumer registers one first.
func (l *batchLoop) nameBatch() error {
	if l.consumer == "" {
		consumer, err := l.queue.Register(l.calls, l.cfg.ConsumerName())
		if err != nil {
			return err
		}
		l.consumer, l.batches = consumer, 0
	}
	l.batches++
	l.next = l.consumer.BatchID(l.batches)
	return nil
}

// finish acknowledges or releases what the loop holds.
func (l *batchLoop) finish() {
	if l.ack != "" {
		if _, err := l.queue.Ack(l.calls, l.ack); err != nil {
			l.queueFailed("ack", err) // its lease expires, and writing it again changes nothing
		}
	}
	if l.uncertain && l.next != "" {
		l.release(l.next)
	}
}

// process writes a batch and reports the result to the queue. The next take acknowledges a batch without failures.
func (l *batchLoop) process(b queue.Batch) {
	ctx, release := l.keepLease(b.ID)
	ctx, span := l.trace(ctx, b.Messages)
	failures, err := l.write(ctx, b.Messages)
	release()
	span.End(err, reasons(failures))
	switch {
	case errors.Is(err, store.ErrStale):
		l.restore(b, err)
		if !l.rebuilt() { // the next batch would be stale too
			l.pause(&l.outdated, KindQueue)
		}
	case errors.Is(err, errLost):
		l.cfg.Metrics.LeaseLost()
		l.restore(b, err)
	case err != nil:
		l.cfg.Log.Info("worker: released an unwritten batch", "batch", b.ID, "orders", len(b.Messages), "err", err)
		l.releaseBatch(b, err)
	case len(failures) > 0:
		l.fail(b, failures)
	default:
		l.ack = b.ID
		l.outdated.reset()
	}
}

// trace begins the span of a batch, which is nil without a traced order.
func (l *batchLoop) trace(ctx context.Context, orders []sale.Order) (context.Context, *telemetry.Batch) {
	if l.cfg.Tracer == nil {
		return ctx, nil
	}
	items := make([]telemetry.Item, len(orders))
	for i, o := range orders {
		items[i] = telemetry.Item{Order: o.ID, SaleID: o.SaleID, Message: o.ID.String()}
	}
	l.cfg.Parents.Fill(ctx, items)
	return l.cfg.Tracer.Batch(ctx, telemetry.Step{Operation: "process", Destination: "orders"}, len(orders), items)
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

// fail acknowledges a batch with failed orders. If the batch is not leased, fail restores it. While the worker shuts
// down, it releases the batch after three failed attempts, and another worker writes it again.
func (l *batchLoop) fail(b queue.Batch, failures []queue.Failure) {
	var pause backoff
	for {
		lost, err := l.queue.Ack(l.calls, b.ID, failures...)
		if err == nil {
			if lost && pause.n == 0 { // otherwise an earlier call may have acknowledged it
				l.cfg.Metrics.LeaseLost()
			}
			if lost {
				l.restore(b, errLost)
			}
			return
		}
		l.queueFailed("ack", err)
		if l.stopping.Err() != nil && pause.n >= 3 {
			l.releaseBatch(b, err)
			return
		}
		l.pause(&pause, KindQueue)
	}
}

// rebuilt reports whether Redis was rebuilt after the current batch was taken.
func (l *batchLoop) rebuilt() bool {
	return l.cfg.Source != nil && l.cfg.Source.Generation() != l.generation
}

// restore queues the orders of a batch again that are neither rows nor known to Redis. It follows a rebuild or the loss
// of a lease: either another worker has the batch, or Redis has lost its data and only this worker has the orders.
// restore retries until it succeeds. It logs the orders that cannot be restored.
func (l *batchLoop) restore(b queue.Batch, cause error) {
	if l.cfg.Source == nil {
		return
	}
	l.cfg.Log.Warn("worker: a lease expired or Redis was rebuilt; restoring orders that Redis may have lost",
		"batch", b.ID, "orders", len(b.Messages), "err", cause)
	var pause backoff
	for {
		skipped, err := l.cfg.Source.RestoreOrders(l.calls, b.Messages)
		if err == nil {
			if len(skipped) > 0 {
				l.cfg.Log.Warn("worker: orders cannot be restored: their sale is archived or not in SQL; compare them "+
					"with the files of the archive", "orders", idsOf(skipped))
			}
			break
		}
		l.queueFailed("restore", err)
		if l.hard.Err() != nil {
			l.cfg.Log.Error("worker: stopped with orders that Redis may have lost", "orders", idsOf(b.Messages))
			return
		}
		pause.wait(l.hard, &l.cfg)
	}
	l.release(b.ID) // in case its lease survived the rebuild
}

func idsOf(orders []sale.Order) []string {
	ids := make([]string, len(orders))
	for i, o := range orders {
		ids[i] = o.ID.String()
	}
	return ids
}

// pause waits before the next attempt and counts the loop as paused.
func (l *batchLoop) pause(b *backoff, kind string) {
	l.cfg.Metrics.Paused(kind, 1)
	defer l.cfg.Metrics.Paused(kind, -1)
	b.wait(l.stopping, &l.cfg)
}

func (l *batchLoop) release(id string) (lost bool) {
	lost, err := l.queue.Release(l.calls, id)
	if err != nil {
		l.queueFailed("release", err)
	}
	return lost
}

// releaseBatch releases a batch that is not written. If the batch is not leased, releaseBatch restores it.
func (l *batchLoop) releaseBatch(b queue.Batch, cause error) {
	if l.release(b.ID) {
		l.restore(b, cause)
	}
}

func (l *batchLoop) queueFailed(call string, err error) {
	l.cfg.Metrics.Failed(KindQueue)
	l.cfg.Log.Warn("worker: queue call failed", "call", call, "err", err)
}

// succeeded reports whether a call that run repeats has succeeded. It counts each failure, and logs the first of a
// series and the success after it. fails holds whether the previous call failed.
func (l *batchLoop) succeeded(fails *bool, call string, err error) bool {
	switch {
	case err != nil && *fails:
		l.cfg.Metrics.Failed(KindQueue)
	case err != nil:
		l.queueFailed(call, err)
	case *fails:
		l.cfg.Log.Info("worker: queue call works again", "call", call)
	}
	*fails = err != nil
	return err == nil
}

var (
	errLost     = errors.New("the lease expired")
	errDrained  = errors.New("the drain timeout has passed")
	errStopping = errors.New("shutting down while the store is unavailable")
)

// keepLease extends the lease of batch id every third of its duration, so that two consecutive calls may fail. ctx ends
// when the lease has expired, or with hard. release stops the extending and waits for a call in progress.
func (l *batchLoop) keepLease(id string) (ctx context.Context, release func()) {
	ctx, cancel := context.WithCancel(l.hard)
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
				cancel()
			case err != nil && ctx.Err() == nil:
				l.queueFailed("extend", err)
			}
		}
	}()
	return ctx, func() {
		cancel()
		<-done
	}
}
