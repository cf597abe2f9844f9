package queue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"sluice/backend/redis/keyspace"
	"sluice/backend/sale"
)

// die makes a dead letter. mu is held.
func (q *Memory) die(m Message, reason string, history []Attempt, crashes int) {
	key := m.ID.String()
	if other, twice := q.letters[key]; twice && !sameOrder(other.Message, m) { // two orders of one id: both are kept
		sum := sha256.Sum256([]byte(keyspace.EncodeMessage(m)))
		key = rawPrefix + hex.EncodeToString(sum[:20])
	}
	q.letters[key] = DeadLetter{
		Key: key, Message: m, Reason: reason, History: history, Crashes: crashes, DiedAt: q.now().UTC().Truncate(time.Millisecond),
	}
	q.forget(m)
}

func (q *Memory) crashed(m Message) {
	n := q.crashes[m.ID] + 1
	q.die(m, fmt.Sprintf("crashed its worker %d times", n), q.attempts[m.ID], n)
}

// sameOrder compares all but the serial, which a rebuild may change.
func sameOrder(a, b Message) bool {
	a.Serial, a.Status = b.Serial, b.Status
	return a == b
}

// DeadLetters lists one page, the longest dead first. next is the cursor of the page after it, empty at the end. It returns a *sale.InvalidError for a cursor that
// came with no page.
func (q *Memory) DeadLetters(_ context.Context, query DeadQuery) (page []DeadLetter, next string, err error) {
	from, err := parseCursor(query.After)
	if err != nil {
		return nil, "", err
	}
	limit := min(query.Limit, 1000)
	if limit <= 0 {
		limit = 100
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range q.letters {
		if from.before(place(d)) && query.selects(&d) {
			page = append(page, d)
		}
	}
	slices.SortFunc(page, func(a, b DeadLetter) int { return cmp.Or(a.DiedAt.Compare(b.DiedAt), cmp.Compare(a.Key, b.Key)) })
	if len(page) > limit {
		page = page[:limit]
		next = place(page[limit-1]).String()
	}
	return page, next, nil
}

func place(d DeadLetter) cursor { return cursor{d.DiedAt.UnixMilli(), d.Key} }

// DeadLetter finds one. It returns sale.ErrNotFound.
func (q *Memory) DeadLetter(_ context.Context, id sale.OrderID) (DeadLetter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, ok := q.letters[id.String()]
	if !ok {
		return DeadLetter{}, notDead(id)
	}
	return d, nil
}

// RetryDead puts a dead order back at the front of the queue as if it had never failed. It returns sale.ErrNotFound, or sale.ErrConflict while somebody cancels it.
func (q *Memory) RetryDead(_ context.Context, id sale.OrderID) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, ok := q.letters[id.String()]
	switch {
	case !ok:
		return notDead(id)
	case d.Cancelling:
		return fmt.Errorf("dead letter %s is being cancelled: %w", id, sale.ErrConflict)
	}
	delete(q.letters, d.Key)
	q.forget(d.Message)
	q.putBack([]Message{d.Message})
	return nil
}

// BeginCancel marks a dead order: from now on it cannot be retried. Doing it again gives the same letter. It returns sale.ErrNotFound.
func (q *Memory) BeginCancel(_ context.Context, id sale.OrderID) (DeadLetter, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d, ok := q.letters[id.String()]
	if !ok {
		return DeadLetter{}, notDead(id)
	}
	d.Cancelling = true
	q.letters[d.Key] = d
	return d, nil
}

// FinishCancel removes a dead order that BeginCancel has marked. With giveBack, whoever counts the units is told, once. It returns sale.ErrNotFound, also when it is
// done already, or sale.ErrConflict without BeginCancel.
func (q *Memory) FinishCancel(_ context.Context, id sale.OrderID, giveBack bool) error {
	q.mu.Lock()
	d, ok := q.letters[id.String()]
	switch {
	case !ok:
		q.mu.Unlock()
		return notDead(id)
	case !d.Cancelling:
		q.mu.Unlock()
		return fmt.Errorf("dead letter %s: cancelling was not begun: %w", id, sale.ErrConflict)
	}
	delete(q.letters, d.Key)
	tell := q.giveBack
	q.mu.Unlock()
	if giveBack {
		tell(d.Message)
	}
	return nil
}
