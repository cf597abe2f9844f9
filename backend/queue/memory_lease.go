package queue

import (
	"context"
	"slices"
	"sort"
	"time"
)

// Take leases the next messages, at most limit of them; see TakeAs.
func (q *Memory) Take(ctx context.Context, limit int, ack string) (b Batch, lost bool, err error) {
	return q.TakeAs(ctx, NewBatchID(), limit, ack)
}

// TakeAs acknowledges the batch ack (none when it is empty) and leases the next messages, at most limit of them, as batch id. Repeated while that is leased, it gives
// the same messages. lost tells that the batch ack was not leased any more. It returns no error.
func (q *Memory) TakeAs(ctx context.Context, id string, limit int, ack string) (b Batch, lost bool, err error) {
	limit = min(max(limit, 1), MaxBatch)
	messages, lost := q.take(id, limit, ack)
	if len(messages) == 0 {
		if n, _ := q.Reclaim(ctx, reclaimOnTake); n > 0 {
			messages, _ = q.take(id, limit, "")
		}
	}
	if len(messages) == 0 {
		return Batch{}, lost, nil
	}
	return Batch{ID: id, Messages: messages}, lost, nil
}

func (q *Memory) take(id string, limit int, ack string) (messages []Message, lost bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	deadline := q.now().Add(q.cfg.Lease)
	if b := q.batches[id]; b != nil {
		b.deadline = deadline
		return slices.Clone(b.messages), false
	}
	if done := q.batches[ack]; done != nil {
		delete(q.batches, ack)
		for _, m := range done.messages {
			q.forget(m)
		}
	} else {
		lost = ack != ""
	}
	q.promote()
	n := min(limit, q.ready())
	for i := range n {
		if q.crashes[q.at(i).ID] >= q.cfg.MaxCrashes { // it travels alone
			n = max(1, i)
			break
		}
	}
	if n == 0 {
		return nil, lost
	}
	messages = q.pop(n)
	q.batches[id] = &memoryBatch{messages, deadline}
	if q.ready() > 0 {
		q.signal()
	}
	return slices.Clone(messages), lost
}

// Ack ends a lease: the messages named in failures are delayed or die, all others are done. Failures that name no message of
// the batch are ignored. lost tells that the batch was not leased any more; then nothing has changed. It returns no error.
func (q *Memory) Ack(_ context.Context, batchID string, failures ...Failure) (lost bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.batches[batchID]
	if b == nil {
		return true, nil
	}
	delete(q.batches, batchID)
	now := q.now()
	for _, m := range b.messages {
		i := slices.IndexFunc(failures, func(f Failure) bool { return f.ID == m.ID })
		if i < 0 {
			q.forget(m)
			continue
		}
		reason := cleanReason(failures[i].Reason)
		history := append(q.attempts[m.ID], Attempt{At: now.UTC().Truncate(time.Millisecond), Reason: reason})
		if failures[i].Permanent || len(history) >= q.cfg.MaxAttempts {
			q.die(m, reason, history, q.crashes[m.ID])
			continue
		}
		q.attempts[m.ID] = history
		q.delay(m, now.Add(time.Duration(float64(q.backoff(len(history)))*q.cfg.Jitter())))
	}
	return false, nil
}

// backoff is the longest wait after that many failures.
func (q *Memory) backoff(failures int) time.Duration {
	d := q.cfg.BackoffBase
	for range failures - 1 {
		if d >= q.cfg.BackoffCap {
			break
		}
		d *= 2
	}
	return min(d, q.cfg.BackoffCap)
}

func (q *Memory) delay(m Message, due time.Time) {
	i := sort.Search(len(q.delayed), func(i int) bool { return q.delayed[i].due.After(due) })
	q.delayed = slices.Insert(q.delayed, i, delayedMessage{m, due})
}

// Release ends a lease with nothing done: its messages go back to the front, and no failure is counted. It returns no error.
func (q *Memory) Release(_ context.Context, batchID string) (lost bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.batches[batchID]
	if b == nil {
		return true, nil
	}
	delete(q.batches, batchID)
	q.putBack(b.messages)
	return false, nil
}

// Extend counts a lease from now. lost tells that the batch was not leased any more: stop working on it. It returns no error.
func (q *Memory) Extend(_ context.Context, batchID string) (lost bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.batches[batchID]
	if b == nil {
		return true, nil
	}
	b.deadline = q.now().Add(q.cfg.Lease)
	return false, nil
}

// Reclaim takes back at most limit leases that have run out, the longest expired first, and makes delayed messages ready whose time has come. Within one process
// a lease runs out when a goroutine hangs or has panicked. It returns no error.
func (q *Memory) Reclaim(_ context.Context, limit int) (leases int, err error) {
	var counts []int
	defer func() {
		for _, n := range counts { // not under the lock: it is the caller's
			q.cfg.Reclaimed(n)
		}
	}()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.promote()
	var expired []string
	for id, b := range q.batches {
		if !b.deadline.After(q.now()) {
			expired = append(expired, id)
		}
	}
	slices.SortFunc(expired, func(a, b string) int { return q.batches[a].deadline.Compare(q.batches[b].deadline) })
	for _, id := range expired[:min(len(expired), max(limit, 1))] {
		messages := q.batches[id].messages
		delete(q.batches, id)
		counts = append(counts, len(messages))
		if first := messages[0]; len(messages) == 1 && q.crashes[first.ID] >= q.cfg.MaxCrashes {
			q.crashed(first)
			continue
		}
		for _, m := range messages {
			q.crashes[m.ID]++
		}
		q.putBack(messages)
	}
	return len(counts), nil
}
